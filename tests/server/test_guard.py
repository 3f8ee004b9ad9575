from __future__ import annotations

import asyncio
import hashlib
import time
from contextlib import AsyncExitStack

import pytest

from tokenwire.v1 import chat_pb2
from tokenwire_server.backend import CallContext
from tokenwire_server.errors import StatusError
from tokenwire_server.guard import Guard, GuardLimits


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def test_without_keys_the_door_is_open() -> None:
    Guard(GuardLimits()).authorize(CallContext())


@pytest.mark.parametrize("given", ["", "wrong", "left ", "\udcff"])
def test_a_wrong_key_is_refused(given: str) -> None:
    with pytest.raises(StatusError) as caught:
        Guard(GuardLimits(), [digest("left"), digest("right")]).authorize(CallContext(api_key=given))
    assert caught.value.reason == "UNAUTHENTICATED"


def test_a_right_key_is_named_but_not_kept() -> None:
    call = CallContext(api_key="right")
    Guard(GuardLimits(), [digest("left"), digest("right")]).authorize(call)
    assert call.identity == "key-1"


def test_admin_is_off_unless_asked_for() -> None:
    with pytest.raises(StatusError) as caught:
        Guard(GuardLimits()).check_admin()
    assert caught.value.reason == "PERMISSION_DENIED"
    Guard(GuardLimits(), admin=True).check_admin()


def test_the_deadline_is_the_smallest_of_all() -> None:
    guard = Guard(GuardLimits(max_timeout_s=10))
    call = CallContext()
    guard.set_deadline(call, chat_pb2.ChatRequest())
    assert call.deadline == call.received_at + 10
    request = chat_pb2.ChatRequest()
    request.timeout.FromMilliseconds(2500)
    call = CallContext()
    guard.set_deadline(call, request)
    assert call.deadline == call.received_at + 2.5
    call = CallContext(deadline=time.monotonic() + 1)
    at = call.deadline
    guard.set_deadline(call, request)
    assert call.deadline == at


def test_a_deadline_that_has_passed_is_refused_at_once() -> None:
    with pytest.raises(StatusError) as caught:
        Guard(GuardLimits()).set_deadline(CallContext(deadline=time.monotonic() - 1), chat_pb2.ChatRequest())
    assert caught.value.reason == "DEADLINE_EXCEEDED"


async def test_a_full_queue_refuses_with_a_delay_and_the_order_is_that_of_arrival() -> None:
    guard = Guard(GuardLimits(max_running=1, max_queued=2))
    order: list[int] = []

    async def enter(number: int, inside: asyncio.Event, leave: asyncio.Event) -> None:
        async with guard.admit(CallContext()):
            order.append(number)
            inside.set()
            await leave.wait()

    inside, leave = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(enter(0, inside, leave))
        await inside.wait()
        for number in (1, 2):
            group.create_task(enter(number, asyncio.Event(), leave))
        while guard.queued_count < 2:
            await asyncio.sleep(0)
        with pytest.raises(StatusError) as caught:
            async with guard.admit(CallContext()):
                pass
        assert caught.value.reason == "QUEUE_FULL"
        assert caught.value.retry_delay_s == 1.0
        leave.set()
    assert order == [0, 1, 2]
    assert (guard.open_count, guard.queued_count) == (0, 0)


async def test_who_gives_up_waiting_leaves_no_trace() -> None:
    guard = Guard(GuardLimits(max_running=1, max_queued=8))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(guard.admit(CallContext()))
        with pytest.raises(StatusError) as caught:
            async with guard.admit(CallContext(deadline=time.monotonic() + 0.01)):
                pass
        assert caught.value.reason == "DEADLINE_EXCEEDED"

        async def wait() -> None:
            async with guard.admit(CallContext()):
                pass

        waiting = asyncio.create_task(wait())
        while not guard.queued_count:
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert guard.queued_count == 0
    async with guard.admit(CallContext()):
        assert guard.open_count == 1
    assert guard.open_count == 0


async def test_a_draining_guard_lets_nothing_in() -> None:
    guard = Guard(GuardLimits())
    guard.drain()
    with pytest.raises(StatusError) as caught:
        async with guard.admit(CallContext()):
            pass
    assert caught.value.reason == "DRAINING"
