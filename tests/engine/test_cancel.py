"""200 streams, each ended at a random moment: the engine is empty within 2 s, and the next request is served."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tests.engine.conftest import MODEL, RealService
from tokenwire.admin.v1 import admin_pb2, admin_pb2_grpc
from tokenwire.v1 import chat_pb2, chat_pb2_grpc, sampling_pb2

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]

STREAMS = 200
SPREAD_S = 4.0
"""Streams end at a random moment of this time: the first before any token, many while queued, others mid-stream."""
WITHIN_S = 2.0

SEED = 20260


def request(max_tokens: int = 2000) -> chat_pb2.ChatRequest:
    part = chat_pb2.ContentPart(text="Count as far as you can.")
    sampling = sampling_pb2.SamplingParams(max_tokens=max_tokens, ignore_eos=True, temperature=0)
    return chat_pb2.ChatRequest(
        messages=[chat_pb2.ChatMessage(role=chat_pb2.ROLE_USER, content=[part])], sampling=sampling
    )


async def load(service: RealService) -> admin_pb2.ReplicaLoad:
    stub = admin_pb2_grpc.AdminServiceStub(service.channel)
    return (await stub.GetLoad(admin_pb2.GetLoadRequest())).replicas[0]


async def seconds_until_empty(service: RealService) -> float:
    began = time.monotonic()
    while True:
        now = await load(service)
        if not (now.running_count or now.waiting_count or now.open_count or now.queued_count):
            return time.monotonic() - began
        assert time.monotonic() - began < 30, now
        await asyncio.sleep(0.02)


async def settled(service: RealService) -> None:
    """Asserts what every case must show at its end."""
    took = await seconds_until_empty(service)
    assert took < WITHIN_S, f"the engine was empty only {took:.1f} s after the last stream ended"
    answer = await chat_pb2_grpc.ChatServiceStub(service.channel).Chat(request(max_tokens=4))
    assert answer.usage.output_token_count == 4


@pytest.fixture
async def channels(service: RealService) -> AsyncIterator[list[grpc.aio.Channel]]:
    """Four connections: the streams of one are not the only ones there are."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    made = [grpc.aio.insecure_channel(service.target, options=options) for _ in range(4)]
    yield made
    for channel in made:
        await channel.close()


async def read(call: Any) -> tuple[int, grpc.StatusCode]:
    events = 0
    try:
        async for _ in call:
            events += 1
    except grpc.aio.AioRpcError as error:
        return events, error.code()
    except asyncio.CancelledError:
        return events, grpc.StatusCode.CANCELLED
    return events, grpc.StatusCode.OK


async def test_by_cancel(service: RealService, channels: list[grpc.aio.Channel]) -> None:
    moments = random.Random(SEED)
    stubs = [chat_pb2_grpc.ChatServiceStub(channel) for channel in channels]
    calls = [stubs[i % 4].StreamChat(request()) for i in range(STREAMS)]

    async def one(call: Any) -> tuple[int, grpc.StatusCode]:
        reading = asyncio.ensure_future(read(call))
        await asyncio.sleep(moments.uniform(0, SPREAD_S))
        call.cancel()
        return await reading

    ends = await asyncio.gather(*map(one, calls))
    assert {code for _, code in ends} == {grpc.StatusCode.CANCELLED}
    assert any(events == 0 for events, _ in ends), "none was cancelled before its first token"
    assert any(events > 2 for events, _ in ends), "none was cancelled mid-stream"
    await settled(service)


@pytest.mark.parametrize("by", ["gRPC deadline", "timeout field"])
async def test_by_deadline(service: RealService, channels: list[grpc.aio.Channel], by: str) -> None:
    moments = random.Random(SEED)
    stubs = [chat_pb2_grpc.ChatServiceStub(channel) for channel in channels]

    async def one(number: int) -> tuple[int, grpc.StatusCode]:
        wanted, seconds = request(), moments.uniform(0.05, SPREAD_S)
        if by == "timeout field":
            wanted.timeout.FromMilliseconds(int(seconds * 1000))
            return await read(stubs[number % 4].StreamChat(wanted))
        return await read(stubs[number % 4].StreamChat(wanted, timeout=seconds))

    ends = await asyncio.gather(*map(one, range(STREAMS)))
    assert {code for _, code in ends} == {grpc.StatusCode.DEADLINE_EXCEEDED}
    await settled(service)


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
async def test_by_closing_the_rest_connection(service: RealService, stream: bool) -> None:
    moments = random.Random(SEED)
    body = json.dumps(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": "Count as far as you can."}],
            "max_tokens": 2000,
            "ignore_eos": True,
            "stream": stream,
        }
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode()

    async def one(number: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.http_port)
        writer.write(head)
        if number % 2:  # two packets, as httpx sends them
            await asyncio.sleep(0.001)
        writer.write(body)
        await writer.drain()
        received = 0
        try:
            async with asyncio.timeout(moments.uniform(0, SPREAD_S)):
                while data := await reader.read(65536):
                    received += len(data)
        except TimeoutError:
            pass
        writer.transport.abort()
        return received

    received = await asyncio.gather(*(one(number) for number in range(STREAMS)))
    assert any(count == 0 for count in received)
    assert not stream or any(count > 0 for count in received)
    await settled(service)


async def test_during_a_long_prefill(service: RealService) -> None:
    """A prompt of 4000 tokens takes seconds to read on this engine: the cancel comes before its first token."""
    stub = chat_pb2_grpc.ChatServiceStub(service.channel)
    long = request()
    long.messages[0].content[0].text = " ".join(str(i % 7) for i in range(1900)) + f" {time.time()}"
    long.sampling.max_tokens = 8
    calls = [stub.StreamChat(long) for _ in range(4)]
    reading = [asyncio.ensure_future(read(call)) for call in calls]
    while not (await load(service)).running_count:
        await asyncio.sleep(0.01)
    for call in calls:
        call.cancel()
    ends = await asyncio.gather(*reading)
    assert {code for _, code in ends} == {grpc.StatusCode.CANCELLED}
    await settled(service)
