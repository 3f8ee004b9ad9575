"""The real service: vLLM on the CPU behind Ray Serve and HAProxy, started once as a user starts it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil
import pytest

from tokenwire_server.embedded import provide

BIN = Path(sys.executable).parent

MODEL = "smollm2-135m"

PROMPTS = (
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "List three colours – e.g. 'grün', 赤, 🔵.",
)
"""What the service and vLLM by itself are both asked, greedily."""

MAX_TOKENS = 24
"""How much they answer."""


@dataclass
class RealService:
    """Where the running service is."""

    grpc_port: int
    http_port: int
    pid: int
    channel: grpc.aio.Channel
    http: httpx.AsyncClient

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"


class OfflineChat:
    """`vllm.LLM(...).chat` in a process of its own, which starts at once and is waited for at the first need."""

    def __init__(self, environment: dict[str, str]) -> None:
        program = Path(__file__).with_name("offline_chat.py")
        folder = provide("embedded:smollm2-135m-instruct", print)
        self._process = subprocess.Popen(
            [sys.executable, program, folder, str(MAX_TOKENS), *PROMPTS],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def answers(self) -> dict[str, Any]:
        """Text, token ids and prompt ids, by prompt."""
        out, err = self._process.communicate(timeout=150)
        assert self._process.returncode == 0, err[-3000:]
        return dict(zip(PROMPTS, json.loads(out.splitlines()[-1]), strict=True))

    def end(self) -> None:
        """Whether or not it was waited for."""
        self._process.kill()
        self._process.communicate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class _Ports:
    grpc: int
    http: int
    pid: int


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Ports]:
    """`tokenwire serve` with no configuration, as a process of its own."""
    ports = free_port(), free_port()
    command = [BIN / "tokenwire", "serve", "--admin", "--grpc-port", str(ports[0]), "--http-port", str(ports[1])]
    log = tmp_path_factory.mktemp("serve") / "stderr.log"
    with log.open("w") as errors:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert server.stdout is not None
    lines = []
    for line in server.stdout:
        lines.append(line)
        if line.startswith("ready in"):
            break
    else:
        pytest.fail(f"tokenwire serve did not start:\n{''.join(lines)}\n{log.read_text()[-3000:]}")
    try:
        yield _Ports(*ports, server.pid)
    finally:
        mine = psutil.Process(server.pid).children(recursive=True)
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=60)
        server.stdout.close()
    left = [process.name() for process in mine if process.is_running()]
    assert code == 0, log.read_text()[-3000:]
    assert not left, f"left behind after SIGTERM: {left}"


@pytest.fixture(scope="package")
async def service(running: _Ports) -> AsyncIterator[RealService]:
    async with (
        grpc.aio.insecure_channel(f"127.0.0.1:{running.grpc}") as channel,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{running.http}", timeout=60) as http,
    ):
        yield RealService(running.grpc, running.http, running.pid, channel, http)


@pytest.fixture(scope="session")
def offline_environment() -> dict[str, str]:
    """Environment of a vLLM without a server beside ours."""
    return {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="package")
def offline_chat(offline_environment: dict[str, str]) -> Iterator[OfflineChat]:
    process = OfflineChat(offline_environment)
    yield process
    process.end()
