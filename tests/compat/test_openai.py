"""The `openai` package: chat completions, the Responses API, and its typed errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.compat.conftest import KEY, MODEL

MULTIPLY: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "multiply", "description": "a times b", "parameters": MULTIPLY}}
]
ASK: list[Any] = [{"role": "user", "content": "What is 6 times 7?"}]


class City(BaseModel):
    name: str
    population: int


@pytest.fixture(scope="module")
def client(v1: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=v1, api_key=KEY, timeout=60, max_retries=0) as made:
        yield made


def test_chat(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Grüße, 世界"}])
    assert reply.choices[0].message.content == "You said: Grüße, 世界"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": "Grüße, 世界"}], stream_options={"include_usage": True}
    ) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        whole = stream.get_final_completion()
    assert len(deltas) > 1
    assert "".join(deltas) == whole.choices[0].message.content == "You said: Grüße, 世界"
    assert whole.usage is not None
    assert whole.usage.completion_tokens > 0


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "multiply"}}])
def test_tool_loop(client: openai.OpenAI, choice: Any) -> None:
    first = (
        client.chat.completions.create(model=MODEL, messages=ASK, tools=TOOLS, tool_choice=choice).choices[0].message
    )
    (call,) = first.tool_calls or ()
    assert call.type == "function"
    assert call.function.name == "multiply"
    assert json.loads(call.function.arguments) == {"a": 6, "b": 7}
    messages = [*ASK, first, {"role": "tool", "tool_call_id": call.id, "content": "42"}]
    last = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS).choices[0]
    assert last.message.content == "The answer is 42."
    assert last.finish_reason == "stop"


def test_streamed_tool_call(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model=MODEL, messages=ASK, tools=TOOLS) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        choice = stream.get_final_completion().choices[0]
    assert [(event.name, json.loads(event.arguments)) for event in done] == [("multiply", {"a": 6, "b": 7})]
    assert choice.finish_reason == "tool_calls"


def test_structured_output(client: openai.OpenAI) -> None:
    reply = client.chat.completions.parse(
        model=MODEL,
        messages=[{"role": "user", "content": "Tell me of 'Genoa' with 558000 people"}],
        response_format=City,
    )
    assert reply.choices[0].message.parsed == City(name="Genoa", population=558000)


def test_a_strict_tool_is_parsed(client: openai.OpenAI) -> None:
    reply = client.chat.completions.parse(
        model=MODEL,
        messages=[{"role": "user", "content": "Store 'Genoa' with 558000 people"}],
        tools=[openai.pydantic_function_tool(City)],
    )
    (call,) = reply.choices[0].message.tool_calls or ()
    assert call.function.parsed_arguments == City(name="Genoa", population=558000)


def test_choice_and_regex_by_extra_body(client: openai.OpenAI) -> None:
    for wanted, expected in (({"choice": ["red", "blue"]}, "red"), ({"regex": r"\d+"}, "2")):
        reply = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "1.5 or 2"}], extra_body={"structured_outputs": wanted}
        )
        assert reply.choices[0].message.content == expected


def test_responses(client: openai.OpenAI) -> None:
    reply = client.responses.create(model=MODEL, input="Hello", instructions="Be kind.")
    assert reply.output_text == "You said: Hello"
    assert reply.status == "completed"
    with client.responses.stream(model=MODEL, input="Hello") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(deltas) == final.output_text == "You said: Hello"


def test_responses_tool_loop(client: openai.OpenAI) -> None:
    tools: list[Any] = [{"type": "function", "name": "multiply", "parameters": MULTIPLY, "strict": True}]
    items: list[Any] = [*ASK]
    first = client.responses.create(model=MODEL, input=items, tools=tools, store=False)
    (call,) = [item for item in first.output if item.type == "function_call"]
    assert json.loads(call.arguments) == {"a": 6, "b": 7}
    items += [*first.output, {"type": "function_call_output", "call_id": call.call_id, "output": "42"}]
    assert client.responses.create(model=MODEL, input=items, tools=tools).output_text == "The answer is 42."


def test_responses_structured_output(client: openai.OpenAI) -> None:
    reply = client.responses.parse(model=MODEL, input="Tell me of 'Genoa' with 558000 people", text_format=City)
    assert reply.output_parsed == City(name="Genoa", population=558000)


def test_errors_are_typed(client: openai.OpenAI) -> None:
    hi: list[Any] = [{"role": "user", "content": "hi"}]
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="nobody", messages=hi)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model=MODEL, messages=hi, temperature=9)
    assert wrong.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x" * 40_000}])
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model=MODEL, input="hi", previous_response_id="resp_1")


async def test_the_asynchronous_client(v1: str) -> None:
    async with openai.AsyncOpenAI(base_url=v1, api_key=KEY, timeout=60) as client:
        assert [model.id async for model in client.models.list()] == [MODEL]
        stream = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Hello"}], stream=True
        )
        chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "You said: Hello"
