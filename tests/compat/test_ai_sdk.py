"""Vercel's AI SDK: `ai` with `@ai-sdk/openai-compatible`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compat.conftest import Program

GENOA = {"name": "Genoa", "population": 558000}


@pytest.fixture(scope="module")
def said(program: Program) -> dict[str, Any]:
    return program("ai_sdk.mjs")


def test_chat(said: dict[str, Any]) -> None:
    assert said["chat"]["text"] == "You said: Grüße, 世界"
    assert said["chat"]["finish"] == "stop"
    assert said["chat"]["output_tokens"] > 0


def test_stream(said: dict[str, Any]) -> None:
    assert len(said["stream"]) > 1
    assert "".join(said["stream"]) == "You said: Grüße, 世界"
    assert said["stream_usage"] == said["chat"]["output_tokens"]


@pytest.mark.parametrize("way", ["tools", "streamed_tools"])
def test_tool_loop(said: dict[str, Any], way: str) -> None:
    steps = [["tool-calls", [{"a": 6, "b": 7}]], ["stop", []]]
    assert said[way] == {"text": "The answer is 42.", "steps": steps}


def test_required_tool(said: dict[str, Any]) -> None:
    assert said["required"] == [["multiply", {"a": 6, "b": 7}]]


def test_structured_output(said: dict[str, Any]) -> None:
    assert said["structured"] == GENOA
    assert said["choice"] in ("blue", "red")
    assert said["json_object"] == {"answer": "Genoa"}


def test_a_strict_tool_before_a_structured_output(said: dict[str, Any]) -> None:
    assert said["strict_tool_then_structured"] == {"product": "42", "steps": 2}


def test_a_tool_before_a_structured_output(said: dict[str, Any]) -> None:
    assert said["tool_then_structured"] == {"product": "42", "steps": 2}


def test_streamed_structured_output(said: dict[str, Any]) -> None:
    assert len(said["partial"]) > 1
    assert said["partial"][-1] == GENOA


def test_an_unknown_model_is_a_404(said: dict[str, Any]) -> None:
    unknown = said["unknown_model"]
    assert (unknown["kind"], unknown["status"]) == ("AI_APICallError", 404)
    assert "nobody" in unknown["message"]
