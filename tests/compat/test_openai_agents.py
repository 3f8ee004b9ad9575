"""`openai-agents`, over the Responses API and over chat completions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from pydantic import BaseModel

from tests.compat.conftest import KEY, MODEL

ASK = "What is 6 times 7?"
QUIET = RunConfig(tracing_disabled=True)


class City(BaseModel):
    name: str
    population: int


@function_tool
def multiply(a: int, b: int) -> str:
    """Multiplies two numbers."""
    return str(a * b)


@pytest.fixture(params=[OpenAIResponsesModel, OpenAIChatCompletionsModel])
async def model(request: pytest.FixtureRequest, v1: str) -> AsyncIterator[Any]:
    async with openai.AsyncOpenAI(base_url=v1, api_key=KEY, timeout=60, max_retries=0) as client:
        yield request.param(MODEL, client)


async def test_chat(model: Any) -> None:
    agent = Agent(name="Echo", instructions="Be kind.", model=model)
    result = await Runner.run(agent, "Grüße, 世界", run_config=QUIET)
    assert result.final_output == "You said: Grüße, 世界"
    again = await Runner.run(agent, [*result.to_input_list(), {"role": "user", "content": "More"}], run_config=QUIET)
    assert again.final_output == "You said: More"


async def test_stream(model: Any) -> None:
    result = Runner.run_streamed(Agent(name="Echo", model=model), "Grüße, 世界", run_config=QUIET)
    texts = [
        event.data.delta
        async for event in result.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    assert len(texts) > 1
    assert "".join(texts) == result.final_output == "You said: Grüße, 世界"


@pytest.mark.parametrize("choice", [None, "required", "multiply"])
async def test_tool_loop(model: Any, choice: Any) -> None:
    agent = Agent(name="Sums", model=model, tools=[multiply], model_settings=ModelSettings(tool_choice=choice))
    result = await Runner.run(agent, ASK, run_config=QUIET)
    assert result.final_output == "The answer is 42."
    assert [item.type for item in result.new_items] == [
        "tool_call_item",
        "tool_call_output_item",
        "message_output_item",
    ]


async def test_streamed_tool_loop(model: Any) -> None:
    result = Runner.run_streamed(Agent(name="Sums", model=model, tools=[multiply]), ASK, run_config=QUIET)
    names = [event.name async for event in result.stream_events() if event.type == "run_item_stream_event"]
    assert names == ["tool_called", "tool_output", "message_output_created"]
    assert result.final_output == "The answer is 42."


async def test_structured_output(model: Any) -> None:
    agent = Agent(name="Cities", model=model, output_type=City)
    result = await Runner.run(agent, "Tell me of 'Genoa' with 558000 people", run_config=QUIET)
    assert result.final_output == City(name="Genoa", population=558000)


async def test_a_tool_before_a_structured_output(model: Any) -> None:
    class Product(BaseModel):
        product: str

    agent = Agent(name="Sums", model=model, tools=[multiply], output_type=Product)
    result = await Runner.run(agent, ASK, run_config=QUIET)
    assert result.new_items[0].type == "tool_call_item"
    assert result.final_output == Product(product="42")


async def test_a_handoff(model: Any) -> None:
    sums = Agent(name="Sums", model=model)
    result = await Runner.run(Agent(name="Desk", model=model, handoffs=[sums]), ASK, run_config=QUIET)
    assert result.last_agent.name == "Sums"


async def test_an_unknown_model_is_not_found(v1: str) -> None:
    async with openai.AsyncOpenAI(base_url=v1, api_key=KEY, timeout=60, max_retries=0) as client:
        agent = Agent(name="Echo", model=OpenAIResponsesModel("nobody", client))
        with pytest.raises(openai.NotFoundError):
            await Runner.run(agent, "hi", run_config=QUIET)
