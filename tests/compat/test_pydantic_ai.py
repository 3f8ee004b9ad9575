"""`pydantic-ai` over both of its APIs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelHTTPError, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.compat.conftest import KEY, MODEL

ASK = "What is 6 times 7?"


class City(BaseModel):
    """A city."""

    name: str
    population: int


@pytest.fixture
async def provider(v1: str) -> AsyncIterator[OpenAIProvider]:
    async with openai.AsyncOpenAI(base_url=v1, api_key=KEY, timeout=60, max_retries=0) as client:
        yield OpenAIProvider(openai_client=client)


@pytest.fixture(params=[OpenAIChatModel, OpenAIResponsesModel])
def model(request: pytest.FixtureRequest, provider: OpenAIProvider) -> Any:
    return request.param(MODEL, provider=provider)


async def test_chat(model: Any) -> None:
    result = await Agent(model, instructions="Be kind.").run("Grüße, 世界")
    assert result.output == "You said: Grüße, 世界"
    assert result.usage.output_tokens > 0


async def test_stream(model: Any) -> None:
    async with Agent(model).run_stream("Grüße, 世界") as result:
        texts = [text async for text in result.stream_text(delta=True, debounce_by=None)]
    assert len(texts) > 1
    assert "".join(texts) == "You said: Grüße, 世界"


def multiplier(model: Any, asked: list[tuple[int, int]], **kwargs: Any) -> Agent[None, Any]:
    agent: Agent[None, Any] = Agent(model, **kwargs)

    @agent.tool_plain
    def multiply(a: int, b: int) -> int:
        """Multiplies two numbers."""
        asked.append((a, b))
        return a * b

    return agent


async def test_tool_loop(model: Any) -> None:
    asked: list[tuple[int, int]] = []
    result = await multiplier(model, asked).run(ASK)
    assert asked == [(6, 7)]
    assert result.output == "The answer is 42."


async def test_streamed_tool_loop(model: Any) -> None:
    asked: list[tuple[int, int]] = []
    async with multiplier(model, asked).run_stream(ASK) as result:
        assert await result.get_output() == "The answer is 42."
    assert asked == [(6, 7)]


@pytest.mark.parametrize("output", [ToolOutput, NativeOutput, PromptedOutput])
async def test_structured_output(model: Any, output: Any) -> None:
    result = await Agent(model, output_type=output(City)).run("Tell me of 'Genoa' with 558000 people")
    assert result.output == City(name="Genoa", population=558000)


class Product(BaseModel):
    product: str


@pytest.mark.parametrize("output", [ToolOutput, NativeOutput])
async def test_a_tool_before_a_structured_output(model: Any, output: Any) -> None:
    asked: list[tuple[int, int]] = []
    result = await multiplier(model, asked, output_type=output(Product)).run(ASK)
    assert asked == [(6, 7)]
    assert result.output.product == "42"


async def test_an_unknown_model_is_a_404(provider: OpenAIProvider) -> None:
    model = OpenAIChatModel("nobody", provider=provider)
    with pytest.raises(ModelHTTPError) as raised:
        await Agent(model).run("hi")
    assert raised.value.status_code == 404
