"""The service that other people's clients are tried on, and how their programs are run.

These tests run in an environment of their own, without vLLM and without this project (tests/compat/setup.sh):

    .venv-compat/bin/python -m pytest --confcutdir tests/compat tests/compat
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = Path(sys.prefix)
SERVICE_PYTHON = os.environ.get("COMPAT_SERVICE_PYTHON", str(ROOT / ".venv" / "bin" / "python"))
START_S, STOP_S = 90, 30

MODEL = "obliging"
KEY = "none"

# In the project's own environment there is nothing to collect here.
collect_ignore_glob = [] if importlib.util.find_spec("langchain_tests") else ["test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "compat: other people's clients against the service")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.compat)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says what each client took."""
    spent: dict[str, tuple[int, float]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                # The suites of a package lie elsewhere; the id names the file here that takes them in.
                file = Path(report.nodeid.partition("::")[0]).stem
                count, seconds = spent.get(file, (0, 0.0))
                spent[file] = (count + (report.when == "call" and report.passed), seconds + report.duration)
    for file, (count, seconds) in sorted(spent.items()):
        terminalreporter.write_line(f"{file:<22} {count:>3} passed {seconds:>6.1f} s")


@pytest.fixture(scope="session")
def service() -> Iterator[str]:
    """The service's address, without /v1."""
    # A proxy of the environment is not for this machine.
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"
    command = [SERVICE_PYTHON, "-m", "tests.compat.scripted_service"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield f"http://127.0.0.1:{_port(process)}"
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            assert process.wait(STOP_S) == 0
        finally:
            process.kill()
            process.wait()


def _port(process: subprocess.Popen[str]) -> int:
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    while line := lines.get(timeout=START_S):
        if line.startswith("rest "):
            return int(line.split()[1])
    raise AssertionError("the service did not start")


@pytest.fixture(scope="session")
def v1(service: str) -> str:
    """The address that OpenAI's clients take."""
    return f"{service}/v1"


Program = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def program(v1: str) -> Program:
    """Runs a program of the folders `node` or `programs`, and returns the JSON that it prints."""

    def run(name: str) -> dict[str, Any]:
        here = Path(__file__).parent
        if name.endswith(".mjs"):
            node, home = shutil.which("node"), ENVIRONMENT / "node"
            if node is None or not home.exists():
                pytest.skip("no node here")
            # Packages are looked for from where the program lies.
            command = [node, shutil.copy(here / "node" / name, home)]
        else:
            command = [
                str(ENVIRONMENT / "instructor" / "bin" / "python"),
                str(Path(__file__).parent / "programs" / name),
            ]
        done = subprocess.run([*command, v1, MODEL], capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr[-4000:]
        printed: dict[str, Any] = json.loads(done.stdout)
        return printed

    return run
