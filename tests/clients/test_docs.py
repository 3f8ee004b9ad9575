"""The guide's blocks and the examples run, as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tokenwire.testing import FakeServer

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("client_*.py"))


def run(*arguments: str, text: str = "") -> str:
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_every_block_of_the_guide_runs():
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "client.md").read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) > 8
    with FakeServer(api_key="secret") as server:
        # One program, since the blocks build on each other.
        output = run("-", text="\n".join(blocks).replace("localhost:9000", server.target))
    assert "MODEL_NOT_FOUND" in output
    assert "Tell me about the sea." in output


def test_the_guide_names_the_examples():
    text = (ROOT / "docs" / "client.md").read_text()
    assert all(name in text for name in EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(server, name):
    assert run(str(ROOT / "examples" / name), server.target)
    assert server.calls
