"""The `llm` command, as a user would set it up: a file that names the model, and a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.conftest import ENVIRONMENT, MODEL

Command = Callable[..., str]

FUNCTION = """
def multiply(a: int, b: int) -> int:
    "Multiplies two numbers."
    return a * b
"""


@pytest.fixture(scope="module", params=["chat", "responses"])
def llm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, v1: str) -> Command:
    folder: Path = tmp_path_factory.mktemp("llm")
    model = {
        "model_id": "mine",
        "model_name": MODEL,
        "api_base": v1,
        "supports_tools": True,
        "supports_schema": True,
        "responses": request.param == "responses",
    }
    (folder / "extra-openai-models.yaml").write_text(json.dumps([model, {**model, "model_id": "x", "model_name": "x"}]))
    environment = {**os.environ, "LLM_USER_PATH": str(folder)}

    def run(*arguments: str, succeeds: bool = True) -> str:
        done = subprocess.run(
            [ENVIRONMENT / "bin" / "llm", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode == 0) is succeeds, done.stderr
        return done.stdout if succeeds else done.stderr

    return run


def test_chat(llm: Command) -> None:
    assert llm("-m", "mine", "--no-stream", "-s", "Be kind.", "Grüße, 世界") == "You said: Grüße, 世界\n"


def test_stream_and_its_continuation(llm: Command) -> None:
    assert llm("-m", "mine", "Hello") == "You said: Hello\n"
    assert llm("-c", "More") == "You said: More\n"


@pytest.mark.parametrize("streamed", [(), ("--no-stream",)])
def test_tool_loop(llm: Command, streamed: tuple[str, ...]) -> None:
    assert llm("-m", "mine", *streamed, "--functions", FUNCTION, "What is 6 times 7?") == "The answer is 42.\n"


def test_structured_output(llm: Command) -> None:
    printed = llm("-m", "mine", "--schema", "name, population int", "Tell me of 'Genoa' with 558000 people")
    assert json.loads(printed) == {"name": "Genoa", "population": 558000}


def test_an_unknown_model_is_said(llm: Command) -> None:
    assert "The model `x` does not exist" in llm("-m", "x", "hi", succeeds=False)
