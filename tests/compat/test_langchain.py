"""`langchain-openai` under LangChain's own integration suite for chat models, over both of its APIs."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests
from pydantic import BaseModel

from tests.compat.conftest import KEY, MODEL

# LangChain warns of its own beta parts.
pytestmark = pytest.mark.filterwarnings("ignore")


class Suite(ChatModelIntegrationTests):
    """What holds for both APIs: text, tools and structured output, without images, audio and files."""

    @pytest.fixture(autouse=True)
    def _address(self, v1: str) -> None:
        type(self).base_url = v1

    base_url = ""

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {
            "model": MODEL,
            "base_url": self.base_url,
            "api_key": KEY,
            "timeout": 60,
            "max_retries": 0,
            "stream_usage": True,
        }

    @property
    def has_tool_choice(self) -> bool:
        return True

    @property
    def supports_json_mode(self) -> bool:
        return True


class TestChatCompletions(Suite):
    pass


class TestResponses(Suite):
    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {**super().chat_model_params, "use_responses_api": True, "store": False}


class City(BaseModel):
    """A city."""

    name: str
    population: int


@tool
def multiply(a: int, b: int) -> int:
    """Multiplies two numbers."""
    return a * b


@pytest.fixture(params=["chat", "responses"])
def model(request: pytest.FixtureRequest, v1: str) -> ChatOpenAI:
    apart: dict[str, Any] = {"use_responses_api": True, "store": False} if request.param == "responses" else {}
    return ChatOpenAI(model=MODEL, base_url=v1, api_key=KEY, timeout=60, max_retries=0, **apart)


def test_what_is_said_is_what_comes(model: ChatOpenAI) -> None:
    assert model.invoke("Grüße, 世界").text == "You said: Grüße, 世界"
    chunks = list(model.stream("Grüße, 世界"))
    assert len(chunks) > 1
    assert "".join(chunk.text for chunk in chunks) == "You said: Grüße, 世界"


def test_tool_loop(model: ChatOpenAI) -> None:
    bound = model.bind_tools([multiply])
    whole: AIMessageChunk | None = None
    for chunk in bound.stream("What is 6 times 7?"):
        assert isinstance(chunk, AIMessageChunk)
        whole = chunk if whole is None else whole + chunk
    assert whole is not None
    (call,) = whole.tool_calls
    assert (call["name"], call["args"]) == ("multiply", {"a": 6, "b": 7})
    messages: list[Any] = [("user", "What is 6 times 7?"), whole, multiply.invoke(call)]
    assert bound.invoke(messages).text == "The answer is 42."


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(model: ChatOpenAI, method: Any) -> None:
    reply = model.with_structured_output(City, method=method).invoke("Tell me of 'Genoa' with 558000 people")
    assert reply == City(name="Genoa", population=558000)
