"""The shim over a channel: the same bodies as in process, and what it makes of a server that goes away."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
import httpx
import pytest
from tests.conftest import EchoServer

from tokenwire.v1 import chat_pb2
from tokenwire_server.backend import CallContext
from tokenwire_server.errors import StatusError
from tokenwire_server.rest import create_app
from tokenwire_server.rest.call import RestCall
from tokenwire_server.rest.channel import ChannelBackend

CHAT: dict[str, Any] = {"model": "echo", "messages": [{"role": "user", "content": "a b c d"}]}
NATIVE: dict[str, Any] = {"messages": [{"role": "ROLE_USER", "content": [{"text": "a b c"}]}]}
FAULT: dict[str, Any] = {"model": "echo", "messages": [{"role": "user", "content": "[[fault:ENGINE_DEAD:2]] b c d"}]}
REQUESTS: list[tuple[str, str, Any]] = [
    ("POST", "/v1/chat/completions", CHAT),
    ("POST", "/v1/chat/completions", CHAT | {"stream": True, "n": 2, "stream_options": {"include_usage": True}}),
    ("POST", "/v1/chat/completions", CHAT | {"temperature": 7}),
    ("POST", "/v1/chat/completions", CHAT | {"model": "nope"}),
    ("POST", "/v1/chat/completions", FAULT),
    ("POST", "/v1/chat/completions", FAULT | {"stream": True}),
    ("POST", "/v1/chat/completions", CHAT | {"logprobs": True}),
    ("POST", "/v1/completions", {"model": "echo", "prompt": ["a b", "c"], "max_tokens": 4}),
    ("POST", "/v1/completions", {"model": "echo", "prompt": "a b c", "stream": True}),
    ("POST", "/v1/embeddings", {"model": "echo", "input": "a"}),
    ("GET", "/v1/models", None),
    ("GET", "/v1/models/echo", None),
    ("GET", "/v1/models/nope", None),
    ("GET", "/health", None),
    ("GET", "/healthz", None),
    ("GET", "/healthz?service=tokenwire.v1.ChatService", None),
    ("GET", "/healthz?service=nope", None),
    ("POST", "/tokenwire/v1/chat", NATIVE),
    ("POST", "/tokenwire/v1/streamChat", NATIVE),
    ("POST", "/tokenwire/v1/streamChat?alt=sse", NATIVE),
    ("POST", "/tokenwire/v1/chat", {"messages": []}),
    ("POST", "/tokenwire/v1/models/nope:streamChat", NATIVE),
    ("GET", "/tokenwire/v1/models/echo", None),
    ("GET", "/tokenwire/admin/v1/adapters", None),
]


@asynccontextmanager
async def client_of(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://x.example") as client:
        yield client


def steady(text: str) -> str:
    text = re.sub(r'"created":\d+', '"created":0', text)
    text = re.sub(r'"createTime":"[^"]*"', '"createTime":""', text)
    return re.sub(r'"timing":\{[^}]*\}', '"timing":{}', text)


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
async def test_the_same_bodies_as_in_process(echo_server: EchoServer, method: str, path: str, body: Any) -> None:
    backend = ChannelBackend(echo_server.channel)

    async def health(name: str) -> bool | None:
        return True if name in ("", "tokenwire.v1.ChatService") else None

    local = create_app(echo_server.service, version="v", health=health)
    remote = create_app(backend, version="v", ready=backend.ready, health=backend.health)
    replies = []
    for app in (local, remote):
        async with client_of(app) as client:
            replies.append(await client.request(method, path, json=body, headers={"x-request-id": "same"}))
    first, second = replies
    assert steady(first.text) == steady(second.text)
    assert first.status_code == second.status_code
    vary = {"openai-processing-ms": "", "content-length": ""}
    assert dict(first.headers) | vary == dict(second.headers) | vary


Handler = Callable[[Any, Any], AsyncIterator[bytes]]


@asynccontextmanager
async def scripted(answer: Handler) -> AsyncIterator[ChannelBackend]:
    """A server that answers StreamChat and Chat by hand."""

    async def unary(request: Any, context: Any) -> bytes:
        async for one in answer(request, context):
            return one
        return b""

    methods: dict[str, Any] = {
        "StreamChat": grpc.unary_stream_rpc_method_handler(answer),
        "Chat": grpc.unary_unary_rpc_method_handler(unary),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("tokenwire.v1.ChatService", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield ChannelBackend(channel)
    await server.stop(0)


async def ask(backend: ChannelBackend, call: CallContext | None = None, *, stream: bool = True) -> list[Any]:
    call = call or RestCall()
    request = chat_pb2.ChatRequest()
    if not stream:
        return [await backend.unary("tokenwire.v1.ChatService/Chat", request, call)]
    return [one async for one in backend.stream("tokenwire.v1.ChatService/StreamChat", request, call)]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_reset_before_the_first_message_is_tried_once_more(stream: bool) -> None:
    calls = 0

    async def answer(_request: Any, context: Any) -> AsyncIterator[bytes]:
        nonlocal calls
        calls += 1
        if calls == 1:
            await context.abort(grpc.StatusCode.CANCELLED, "reset")
        yield b""

    async with scripted(answer) as backend:
        assert len(await ask(backend, stream=stream)) == 1
    assert calls == 2


@pytest.mark.parametrize("code", [grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE])
@pytest.mark.parametrize("stream", [True, False])
async def test_two_resets_are_no_replica(stream: bool, code: grpc.StatusCode) -> None:
    calls = 0

    async def answer(_request: Any, context: Any) -> AsyncIterator[bytes]:
        nonlocal calls
        calls += 1
        await context.abort(code, "someone else's words")
        yield b""

    async with scripted(answer) as backend:
        with pytest.raises(StatusError) as caught:
            await ask(backend, stream=stream)
    assert calls == 2
    assert (caught.value.reason, caught.value.retry_delay_s) == ("NO_REPLICA", 1.0)
    assert "someone" not in caught.value.status.message


async def test_a_reset_in_mid_stream_is_not_tried_again() -> None:
    calls = 0

    async def answer(_request: Any, context: Any) -> AsyncIterator[bytes]:
        nonlocal calls
        calls += 1
        yield b""
        await context.abort(grpc.StatusCode.CANCELLED, "reset")

    async with scripted(answer) as backend:
        with pytest.raises(StatusError) as caught:
            await ask(backend)
    assert (calls, caught.value.reason) == (1, "NO_REPLICA")


async def test_a_cancel_of_the_servers_own_is_not_tried_again() -> None:
    calls = 0
    status = StatusError.of("CANCELLED", "The operator ended it.").status

    async def answer(_request: Any, context: Any) -> AsyncIterator[bytes]:
        nonlocal calls
        calls += 1
        context.set_trailing_metadata([("grpc-status-details-bin", status.SerializeToString())])
        await context.abort(grpc.StatusCode.CANCELLED, status.message)
        yield b""

    async with scripted(answer) as backend:
        with pytest.raises(StatusError) as caught:
            await ask(backend)
    assert (calls, caught.value.status) == (1, status)


@pytest.mark.parametrize(
    ("code", "text", "reason"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (9 vs. 4)", "REQUEST_TOO_LARGE"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "overloaded", "RATE_LIMITED"),
        (grpc.StatusCode.UNAUTHENTICATED, "x", "UNAUTHENTICATED"),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", "FEATURE_UNSUPPORTED"),
        (grpc.StatusCode.INVALID_ARGUMENT, "x", "INVALID_FIELD"),
        (grpc.StatusCode.UNKNOWN, "Traceback: secret", "INTERNAL"),
    ],
)
async def test_a_status_that_is_not_ours(code: grpc.StatusCode, text: str, reason: str) -> None:
    async def answer(_request: Any, context: Any) -> AsyncIterator[bytes]:
        context.set_trailing_metadata([("grpc-status-details-bin", b"\xff not a status")])
        await context.abort(code, text)
        yield b""

    async with scripted(answer) as backend:
        with pytest.raises(StatusError) as caught:
            await ask(backend)
    assert caught.value.reason == reason
    assert text not in str(caught.value)


async def test_metadata_both_ways_and_the_deadline() -> None:
    seen: dict[str, Any] = {}

    async def answer(_request: Any, context: Any) -> AsyncIterator[bytes]:
        seen.update(context.invocation_metadata(), remaining=context.time_remaining())
        await context.send_initial_metadata([("x-replica", "7"), ("x-raw-bin", b"\xff")])
        yield b""

    call = RestCall(request_id="r.1", api_key="k", traceparent="00-a-b-01")
    call.metadata = [
        *(("application", "app"), ("data-bin", b"\x01"), ("authorization", "Bearer other")),
        *(("grpc-timeout", "1S"), ("x-request-id", "no")),
    ]
    call.deadline = call.received_at + 20
    async with scripted(answer) as backend:
        await ask(backend, call)
    assert (seen["authorization"], seen["x-request-id"], seen["traceparent"]) == ("Bearer k", "r.1", "00-a-b-01")
    assert (seen["application"], seen["data-bin"]) == ("app", b"\x01")
    assert 15 < seen["remaining"] < 21
    assert dict(call.reply_metadata) == {"x-replica": "7", "x-raw-bin": b"\xff"}


async def test_values_that_grpc_would_not_send_are_left_out() -> None:
    seen: dict[str, Any] = {}

    async def answer(_request: Any, context: Any) -> AsyncIterator[bytes]:
        seen.update(context.invocation_metadata())
        yield b""

    async with scripted(answer) as backend:
        await ask(backend, RestCall(request_id="r", api_key="k\u00e9", traceparent="\u00e9"))
    assert not {"authorization", "traceparent"} & set(seen)


async def test_a_deadline_that_passes_here() -> None:
    async def answer(_request: Any, context: Any) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async with scripted(answer) as backend:
        call = RestCall()
        call.deadline = call.received_at + 0.05
        with pytest.raises(StatusError) as caught:
            await ask(backend, call)
    assert caught.value.reason == "DEADLINE_EXCEEDED"


@pytest.mark.parametrize("how", ["close", "cancel"])
async def test_leaving_cancels_on_the_other_side(how: str) -> None:
    ended, begun = asyncio.Event(), asyncio.Event()

    async def answer(_request: Any, context: Any) -> AsyncIterator[bytes]:
        try:
            yield b""
            begun.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with scripted(answer) as backend:
        if how == "close":
            request = chat_pb2.ChatRequest()
            async with aclosing(backend.stream("tokenwire.v1.ChatService/StreamChat", request, RestCall())) as events:
                await anext(events)
        else:
            task = asyncio.ensure_future(ask(backend))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await asyncio.wait_for(ended.wait(), 5)


async def test_nobody_there() -> None:
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        backend = ChannelBackend(channel)
        app = create_app(backend, version="v", ready=backend.ready, health=backend.health)
        async with client_of(app) as client:
            chat = await client.post("/v1/chat/completions", json=CHAT)
            assert (chat.status_code, chat.headers["retry-after"]) == (503, "1")
            assert chat.json()["error"]["code"] == "server_is_overloaded"
            assert (await client.get("/health")).status_code == 503
            assert (await client.get("/livez")).status_code == 200
            assert (await client.get("/healthz")).json()["code"] == 14
