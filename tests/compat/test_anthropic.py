"""The `anthropic` package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from pydantic import BaseModel

from tests.compat.conftest import KEY, MODEL

TOOLS: list[Any] = [
    {
        "name": "multiply",
        "description": "a times b",
        "input_schema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    }
]
ASK: list[Any] = [{"role": "user", "content": "What is 6 times 7?"}]


class City(BaseModel):
    name: str
    population: int


@pytest.fixture(scope="module")
def client(service: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=service, api_key=KEY, timeout=60, max_retries=0) as made:
        yield made


def test_chat(client: anthropic.Anthropic) -> None:
    reply = client.messages.create(
        model=MODEL, max_tokens=200, system="Be kind.", messages=[{"role": "user", "content": "Grüße, 世界"}]
    )
    assert [block.text for block in reply.content if block.type == "text"] == ["You said: Grüße, 世界"]
    assert reply.stop_reason == "end_turn"
    assert reply.usage.output_tokens > 0


def test_stream(client: anthropic.Anthropic) -> None:
    with client.messages.stream(
        model=MODEL, max_tokens=200, messages=[{"role": "user", "content": "Grüße, 世界"}]
    ) as stream:
        texts = list(stream.text_stream)
        final = stream.get_final_message()
    assert len(texts) > 1
    assert "".join(texts) == "You said: Grüße, 世界"
    assert final.stop_reason == "end_turn"
    assert final.usage.output_tokens > 0


@pytest.mark.parametrize("choice", [{"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "multiply"}])
def test_tool_loop(client: anthropic.Anthropic, choice: Any) -> None:
    first = client.messages.create(model=MODEL, max_tokens=200, messages=ASK, tools=TOOLS, tool_choice=choice)
    assert first.stop_reason == "tool_use"
    (call,) = [block for block in first.content if block.type == "tool_use"]
    assert (call.name, call.input) == ("multiply", {"a": 6, "b": 7})
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "42"}]}
    messages = [*ASK, {"role": "assistant", "content": first.content}, result]
    last = client.messages.create(model=MODEL, max_tokens=200, messages=messages, tools=TOOLS)
    assert [block.text for block in last.content if block.type == "text"] == ["The answer is 42."]


def test_streamed_tool_call(client: anthropic.Anthropic) -> None:
    with client.messages.stream(model=MODEL, max_tokens=200, messages=ASK, tools=TOOLS) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        (call,) = [block for block in stream.get_final_message().content if block.type == "tool_use"]
    assert len(pieces) > 1
    assert call.input == {"a": 6, "b": 7}


def test_the_tool_runner(client: anthropic.Anthropic) -> None:
    @anthropic.beta_tool
    def multiply(a: int, b: int) -> str:
        """Multiplies two numbers."""
        return str(a * b)

    runner = client.beta.messages.tool_runner(model=MODEL, max_tokens=200, messages=ASK, tools=[multiply])
    last = runner.until_done()
    assert [block.text for block in last.content if block.type == "text"] == ["The answer is 42."]


def test_structured_output(client: anthropic.Anthropic) -> None:
    reply = client.messages.parse(
        model=MODEL,
        max_tokens=200,
        messages=[{"role": "user", "content": "Tell me of 'Genoa' with 558000 people"}],
        output_format=City,
    )
    assert reply.parsed_output == City(name="Genoa", population=558000)


def test_tokens_are_counted(client: anthropic.Anthropic) -> None:
    counted = client.messages.count_tokens(model=MODEL, messages=ASK, tools=TOOLS)
    reply = client.messages.create(model=MODEL, max_tokens=200, messages=ASK, tools=TOOLS)
    assert counted.input_tokens == reply.usage.input_tokens + (reply.usage.cache_read_input_tokens or 0)


def test_errors_are_typed(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.messages.create(model="nobody", max_tokens=9, messages=ASK)
    assert missing.value.type == "not_found_error"
    with pytest.raises(anthropic.BadRequestError) as wrong:
        client.messages.create(model=MODEL, max_tokens=9, messages=ASK, extra_body={"temperature": 1.5})
    assert wrong.value.type == "invalid_request_error"
    assert "temperature" in wrong.value.message
