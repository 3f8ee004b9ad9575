"""The `openai` package of npm."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compat.conftest import MODEL, Program

ROLES = ["user", "assistant", "tool", "assistant"]


@pytest.fixture(scope="module")
def said(program: Program) -> dict[str, Any]:
    return program("openai.mjs")


def test_chat(said: dict[str, Any]) -> None:
    assert said["chat"] == "You said: Grüße, 世界"
    assert said["models"] == [MODEL]


def test_stream(said: dict[str, Any]) -> None:
    assert len(said["stream"]) > 2
    assert "".join(said["stream"]) == "You said: Grüße, 世界"


@pytest.mark.parametrize("way", ["tools", "streamed_tools"])
def test_tool_loop(said: dict[str, Any], way: str) -> None:
    assert said[way] == {"final": "The answer is 42.", "roles": ROLES, "arguments": {"a": 6, "b": 7}}


def test_structured_output(said: dict[str, Any]) -> None:
    assert said["structured"] == {"name": "Genoa", "population": 558000}


def test_responses(said: dict[str, Any]) -> None:
    assert said["responses"] == "You said: Hello"
    ends = {"first": "response.created", "last": "response.completed"}
    assert said["responses_stream"] == {"text": "You said: Hello", **ends}


def test_errors_are_typed(said: dict[str, Any]) -> None:
    errors = said["errors"]
    assert errors["unknown_model"]["kind"] == "NotFoundError"
    assert errors["unknown_model"]["code"] == "model_not_found"
    assert errors["wrong_value"]["kind"] == "BadRequestError"
    assert errors["wrong_value"]["param"] == "temperature"
