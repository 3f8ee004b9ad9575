"""Leaving a call early cancels it at the server, which sees it."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

import tokenwire
from tokenwire import errors
from tokenwire.testing import FakeServer


async def cancelled(server: FakeServer) -> bool:
    return await asyncio.to_thread(server.wait_cancelled)


class OopsError(Exception):
    """A failure of the user's own."""


def test_sync_end_of_the_block(server, client):
    server.reply("one two", hold=True)
    with client.stream_chat("x") as stream:
        assert next(stream).content == "one "
    assert server.wait_cancelled()
    assert list(stream) == []
    assert stream.text == "one "


def test_sync_close(server, client):
    server.reply("one two", hold=True)
    with contextlib.closing(client.stream_generate("x")) as stream:
        next(stream)
    assert server.wait_cancelled()


def test_sync_exception_in_the_block(server, client):
    server.reply("one two", hold=True)

    def use() -> None:
        with client.stream_chat("x") as stream:
            next(stream)
            raise OopsError

    with pytest.raises(OopsError):
        use()
    assert server.wait_cancelled()


def test_sync_break(server, client):
    server.reply("one two", hold=True)
    for _ in client.stream_chat("x"):
        break
    assert server.wait_cancelled()


def test_sync_dropped_stream(server, client):
    server.reply("one two", hold=True)
    stream = client.stream_chat("x")
    next(stream)
    del stream
    assert server.wait_cancelled()


def test_sync_cancel_by_another_thread_ends_the_iteration(server, client):
    server.reply("one two", hold=True)
    stream = client.stream_chat("x")
    second = threading.Event()

    def read() -> list[str]:
        texts = []
        for delta in stream:
            texts.append(delta.content)
            if len(texts) == 2:
                second.set()
        return texts

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        assert second.wait(5)
        stream.cancel()
        assert reading.result(timeout=5) == ["one ", "two"]
    assert server.wait_cancelled()


def waits_for_grpc(thread: int) -> bool:
    """Whether a thread waits for an event of a call, as opposed to being about to."""
    frame = sys._current_frames()[thread]
    if frame.f_code is not threading.Condition.wait.__code__:
        return False
    while frame is not None and frame.f_code is not grpc._common.wait.__code__:
        frame = frame.f_back
    return frame is not None


@pytest.mark.parametrize("method", ["chat", "stream_chat"])
def test_sync_ctrl_c(server, method):
    server.reply("", hold=True)
    main = threading.get_ident()

    def interrupt() -> None:
        if server.wait_calls(1):
            # Nobody tells when a thread waits. An interrupt before that could land anywhere in gRPC.
            while not waits_for_grpc(main):
                pass
            _thread.interrupt_main()

    with ThreadPoolExecutor(1) as pool, tokenwire.Client(server.target) as client:
        pool.submit(interrupt)
        # `caught` keeps the frames and all that they hold, so that nothing is cancelled by being dropped.
        with pytest.raises(KeyboardInterrupt) as caught:
            list(getattr(client, method)("x"))
        assert server.wait_cancelled()
        assert caught.traceback


def test_a_stream_that_was_never_read_sends_nothing(server, client, aclient):
    with client.stream_chat("x"):
        pass
    client.stream_chat("x").cancel()
    aclient.stream_chat("x").cancel()
    assert server.calls == []


def test_a_stream_that_has_ended_is_not_cancelled(server, client):
    with client.stream_chat("one two") as stream:
        list(stream)
    assert not server.wait_cancelled(timeout=0)


async def test_async_end_of_the_block(server, aclient):
    server.reply("one two", hold=True)
    async with aclient.stream_chat("x") as stream:
        assert (await anext(stream)).content == "one "
    assert await cancelled(server)
    assert [delta async for delta in stream] == []
    assert stream.text == "one "


async def test_async_close(server, aclient):
    server.reply("one two", hold=True)
    async with contextlib.aclosing(aclient.stream_generate("x")) as stream:
        await anext(stream)
    assert await cancelled(server)


async def test_async_exception_in_the_block(server, aclient):
    server.reply("one two", hold=True)

    async def use() -> None:
        async with aclient.stream_chat("x") as stream:
            await anext(stream)
            raise OopsError

    with pytest.raises(OopsError):
        await use()
    assert await cancelled(server)


async def test_async_break(server, aclient):
    server.reply("one two", hold=True)
    async for _ in aclient.stream_chat("x"):
        break
    assert await cancelled(server)


async def test_async_stream_dropped_in_another_thread(server, aclient):
    server.reply("one two", hold=True)
    holder = [aclient.stream_chat("x")]
    await anext(holder[0])
    await asyncio.to_thread(holder.clear)
    assert await cancelled(server)


async def test_async_cancel_by_another_task_ends_the_iteration(server, aclient):
    server.reply("one two", hold=True)
    stream = aclient.stream_chat("x")
    texts: list[str] = []
    second = asyncio.Event()

    async def read() -> None:
        async for delta in stream:
            texts.append(delta.content)
            if len(texts) == 2:
                second.set()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(read())
        await second.wait()
        stream.cancel()
    assert texts == ["one ", "two"]
    assert await cancelled(server)


async def test_a_cancelled_task_cancels_its_stream(server, aclient):
    server.reply("", hold=True)
    task = asyncio.create_task(anext(aclient.stream_chat("x")))
    assert await asyncio.to_thread(server.wait_calls, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await cancelled(server)


async def test_a_cancelled_task_cancels_its_call(server, aclient):
    server.reply("one", hold=True)
    task = asyncio.create_task(aclient.chat("x"))
    assert await asyncio.to_thread(server.wait_calls, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await cancelled(server)


async def test_closing_the_client_ends_its_calls(server, make_flavour):
    flavour = make_flavour()
    server.reply("one", hold=True)
    server.reply("one two", hold=True)
    unary = asyncio.create_task(flavour.call("chat", "x"))
    assert await asyncio.to_thread(server.wait_calls, 1)
    deltas: list[object] = []
    streamed = asyncio.create_task(flavour.read(flavour.client.stream_chat("x"), deltas))
    assert await asyncio.to_thread(server.wait_calls, 2)
    await flavour.close()
    for task in (unary, streamed):
        with pytest.raises(errors.ClientClosedError):
            await task
    assert await cancelled(server)
    assert await cancelled(server)


async def test_closing_the_client_ends_a_stream_that_nobody_reads_at_the_moment(server, make_flavour):
    flavour = make_flavour()
    server.reply("one two", hold=True)
    stream = flavour.client.stream_chat("x")
    await (anext(stream) if flavour.is_async else asyncio.to_thread(next, stream))
    await flavour.close()
    assert await cancelled(server)
    with pytest.raises(errors.ClientClosedError):
        await flavour.read(stream, [])
