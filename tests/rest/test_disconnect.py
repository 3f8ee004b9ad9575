from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest
from tests.rest.fake_backend import FakeBackend, Script

CHAT: dict[str, Any] = {"model": "org/tiny", "messages": [{"role": "user", "content": "hi"}]}


async def send(port: int, path: str, body: dict[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request as bytes, so that the test can hang up at any point."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    return reader, writer


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/completions", {"model": "org/tiny", "prompt": "hi"}),
        ("/v1/completions", {"model": "org/tiny", "prompt": ["a", "b", "c"]}),
        ("/v1/responses", {"model": "org/tiny", "input": "hi"}),
        ("/v1/messages", CHAT | {"max_tokens": 8}),
    ],
    ids=["chat", "completion", "completions", "responses", "messages"],
)
async def test_hanging_up_before_the_first_token(
    port: int, backend: FakeBackend, path: str, body: dict[str, Any], stream: bool
) -> None:
    backend.script = Script(gate=asyncio.Event())
    async with asyncio.timeout(5):
        _, writer = await send(port, path, body | {"stream": stream})
        await backend.entered.wait()
        writer.transport.abort()
        await backend.cancelled.wait()
        await backend.idle.wait()  # the other prompts' calls too


async def test_hanging_up_in_mid_stream(port: int, backend: FakeBackend) -> None:
    backend.script = Script(gate=asyncio.Event(), gate_after=2)
    async with asyncio.timeout(5):
        reader, writer = await send(port, "/v1/chat/completions", CHAT | {"stream": True})
        await reader.readuntil(b'" world"')
        assert not backend.cancelled.is_set()
        writer.transport.abort()
        await backend.cancelled.wait()


async def test_half_a_body(port: int, backend: FakeBackend, http: httpx.AsyncClient) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
    await writer.drain()
    writer.transport.abort()
    assert (await http.post("/v1/chat/completions", json=CHAT)).status_code == 200
    assert len(backend.requests) == 1


async def test_a_reader_that_lags_holds_the_backend_back(port: int, backend: FakeBackend) -> None:
    chunk = "x" * 65_536
    backend.script = Script(tokens=(chunk,) * 2000)
    async with asyncio.timeout(20):
        reader, writer = await send(port, "/v1/chat/completions", CHAT | {"stream": True})
        await reader.readuntil(b"\r\n\r\n")
        assert backend.running == 1  # 128 MB would not fit the buffers between
        writer.transport.abort()
        await backend.cancelled.wait()


async def test_sdk_timeouts_leave_nothing_behind(backend: FakeBackend, sdk: openai.AsyncOpenAI) -> None:
    backend.script = Script(gate=asyncio.Event())
    impatient = sdk.with_options(timeout=0.05, max_retries=1)
    with pytest.raises(openai.APITimeoutError):
        await impatient.chat.completions.create(model="org/tiny", messages=[{"role": "user", "content": "hi"}])
    async with asyncio.timeout(5):
        await backend.cancelled.wait()
        await backend.idle.wait()
    assert len(backend.requests) == 2
