"""`tokenwire rest` as a process."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import sys

import httpx
import pytest
from tests.conftest import EchoServer

from tokenwire_server.cli import main

CHAT = {"model": "echo", "messages": [{"role": "user", "content": "a b c d"}]}


async def test_the_command(echo_server: EchoServer) -> None:
    command = "from tokenwire_server.cli import main; raise SystemExit(main())"
    arguments = ["rest", "--target", echo_server.target, "--http-port", "0"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", command, *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    url = re.search(r"http://\S+?(?=/v1)", line)
    assert url is not None
    async with httpx.AsyncClient(base_url=url[0], trust_env=False) as client:
        assert (await client.get("/v1/models")).json()["data"][0]["id"] == "echo"
        assert "[DONE]" in (await client.post("/v1/chat/completions", json=CHAT | {"stream": True})).text
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 20) == 0


def test_a_port_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["rest", "--http-port", str(taken.getsockname()[1])]) == 3
    assert "cannot listen" in capsys.readouterr().err
