"""`instructor`, in an environment of its own with an older `openai` package."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compat.conftest import Program

GENOA = {"name": "Genoa", "population": 558000}


@pytest.fixture(scope="module")
def said(program: Program) -> dict[str, Any]:
    return program("instructor_program.py")


def test_chat(said: dict[str, Any]) -> None:
    assert said["chat"] == "Genoa"


@pytest.mark.parametrize("mode", ["TOOLS", "TOOLS_STRICT", "JSON", "JSON_SCHEMA", "MD_JSON", "RESPONSES_TOOLS"])
def test_structured_output(said: dict[str, Any], mode: str) -> None:
    assert said[mode] == GENOA


def test_a_refused_call_is_made_again(said: dict[str, Any]) -> None:
    again = said["asked_again"]
    assert again["refused"] == ["Genoa"]
    assert "say it once more" in again["name"]


def test_streamed_partial_objects(said: dict[str, Any]) -> None:
    assert len(said["partial"]) > 1
    assert said["partial"][-1] == GENOA


def test_streamed_lists(said: dict[str, Any]) -> None:
    assert said["iterable"] == said["async"] == [GENOA]


def test_the_forced_call_ends_as_openai_says(said: dict[str, Any]) -> None:
    assert said["with_completion"] == [GENOA, "stop"]


def test_an_unknown_model_is_not_found(said: dict[str, Any]) -> None:
    assert "NotFoundError" in said["unknown_model"]
