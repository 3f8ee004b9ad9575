"""What is tried again, and what is not."""

from __future__ import annotations

import time

import grpc
import pytest

from tokenwire import errors
from tokenwire._retry import Attempts

RESET = errors.CallResetError(grpc.StatusCode.UNAVAILABLE, "reset")


async def test_unavailable_is_retried_by_grpc(server, flavour):
    server.fail(grpc.StatusCode.UNAVAILABLE, reason="DRAINING", times=2)
    await flavour.call("chat", "x")
    assert len(server.calls) == 3
    server.fail(grpc.StatusCode.UNAVAILABLE, reason="DRAINING", times=2)
    deltas: list[object] = []
    await flavour.read(flavour.client.stream_chat("x"), deltas)
    assert len(server.calls) == 6
    assert len(deltas) == 1


async def test_unavailable_is_raised_in_the_end(server, flavour):
    server.fail(grpc.StatusCode.UNAVAILABLE, reason="NO_REPLICA", retry_delay=2.5, times=3)
    with pytest.raises(errors.UnavailableError) as caught:
        await flavour.call("chat", "x")
    assert (caught.value.reason, caught.value.retry_delay) == ("NO_REPLICA", 2.5)
    assert len(server.calls) == 3


async def test_a_reset_is_unavailable_and_retried(server, flavour):
    server.fail(grpc.StatusCode.CANCELLED, times=2)
    await flavour.call("embed", "x")
    assert len(server.calls) == 3
    server.fail(grpc.StatusCode.CANCELLED, times=2)
    await flavour.read(flavour.client.stream_generate("x"), [])
    assert len(server.calls) == 6
    server.fail(grpc.StatusCode.CANCELLED, times=3)
    with pytest.raises(errors.CallResetError) as caught:
        await flavour.call("chat", "x")
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE
    assert len(server.calls) == 9


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED])
async def test_nothing_is_retried_after_the_first_message(server, flavour, code):
    server.reply("one two three")
    server.fail(code, after=1)
    stream = flavour.client.stream_chat("x")
    deltas: list[object] = []
    with pytest.raises(errors.UnavailableError):
        await flavour.read(stream, deltas)
    assert len(server.calls) == len(deltas) == 1
    assert stream.response.choices[0].content == stream.text == "one "
    again: list[object] = []
    await flavour.read(stream, again)
    assert again == []


async def test_resource_exhausted_is_retried_when_the_server_says_when(server, flavour):
    server.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, reason="QUEUE_FULL", retry_delay=0.01, times=2)
    await flavour.call("chat", "x")
    assert len(server.calls) == 3
    server.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, trailers=[("grpc-retry-pushback-ms", "5")])
    await flavour.read(flavour.client.stream_chat("x"), [])
    assert len(server.calls) == 5


@pytest.mark.parametrize(
    "arguments",
    [
        {"reason": "REQUEST_TOO_LARGE"},
        {"retry_delay": 0.01, "trailers": [("grpc-retry-pushback-ms", "-1")]},
        {"retry_delay": 3600},
    ],
    ids=["no delay", "pushback says never", "delay beyond the deadline"],
)
async def test_resource_exhausted_is_raised_otherwise(server, flavour, arguments):
    server.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, **arguments)
    with pytest.raises(errors.ResourceExhaustedError):
        await flavour.call("chat", "x", timeout=60)
    assert len(server.calls) == 1


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED])
async def test_retries_can_be_turned_off(server, make_flavour, code):
    server.fail(code, times=2)
    flavour = make_flavour(max_retries=0)
    with pytest.raises(errors.UnavailableError):
        await flavour.call("chat", "x")
    with pytest.raises(errors.UnavailableError):
        await flavour.read(flavour.client.stream_chat("x"), [])
    assert len(server.calls) == 2


async def test_a_retry_has_what_is_left_of_the_time(server, client):
    server.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, retry_delay=0.2)
    client.chat("x", timeout=10)
    first, second = (call.request.timeout.ToMilliseconds() for call in server.calls)
    assert second <= first - 200


async def test_a_cancelled_stream_does_not_wait_for_its_retry(server, client):
    server.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, retry_delay=300)
    stream = client.stream_chat("x")
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(list, stream)
        assert server.wait_calls(1)
        stream.cancel()
        assert reading.result(timeout=5) == []


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def attempts(clock: Clock, *, retries: int = 5, timeout: float = 60, jitter: float = 1.0) -> Attempts:
    return Attempts(retries, timeout, clock=clock, jitter=lambda: jitter)


def test_the_backoff_doubles_up_to_a_second():
    ours = attempts(Clock())
    assert [ours.delay_after(RESET) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, None]


def test_a_delay_beyond_the_deadline_is_none():
    clock = Clock()
    ours = attempts(clock, timeout=1)
    assert ours.remaining() == 1
    clock.now = 0.95
    assert ours.delay_after(RESET) is None
    clock.now = 2
    assert ours.remaining() == 0


def test_the_jitter_never_comes_before_what_the_server_said():
    status = (("grpc-retry-pushback-ms", "2000"),)
    full = errors.ResourceExhaustedError(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", status)
    assert attempts(Clock(), jitter=0.8).delay_after(full) == 2
    assert attempts(Clock(), jitter=1.2).delay_after(full) == pytest.approx(2.4)
    assert attempts(Clock(), jitter=0.8).delay_after(RESET) == pytest.approx(0.08)


def test_other_errors_are_final():
    other = errors.InternalError(grpc.StatusCode.INTERNAL, "no")
    assert Attempts(2, 60, clock=time.monotonic).delay_after(other) is None
