"""What the whole suite shares: one plain server over the echo engine, in this process."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc
import pytest

from tokenwire_server.engine.echo import EchoEngine
from tokenwire_server.grpc_server import GrpcDoor, plain_server
from tokenwire_server.guard import Guard, GuardLimits
from tokenwire_server.service import Service
from tokenwire_server.validation import Validator

MAX_MESSAGE_BYTES = 1 << 20

# A shell starts a background job with ctrl-c ignored, and what a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass
class EchoServer:
    """A plain server over the echo engine, and what it is made of."""

    channel: grpc.aio.Channel
    target: str
    engine: EchoEngine
    service: Service


@pytest.fixture(scope="session")
async def echo_server() -> AsyncIterator[EchoServer]:
    engine = EchoEngine("echo", step_ms=1)
    await engine.start()
    guard = Guard(GuardLimits(max_running=64, max_queued=256, max_timeout_s=30), admin=True)
    service = Service(engine, guard, Validator(max_n=8), version="test")
    async with plain_server(GrpcDoor(service, "echo", MAX_MESSAGE_BYTES), "127.0.0.1:0", grace_s=0) as (_, port):
        target = f"127.0.0.1:{port}"
        async with grpc.aio.insecure_channel(target) as channel:
            yield EchoServer(channel, target, engine, service)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives tests that start an engine or a cluster the time that starting takes on a busy machine."""
    for item in items:
        started = item.get_closest_marker("engine") or item.get_closest_marker("ray")
        if started and not any(mark.args[0] > 300 for mark in item.iter_markers("timeout")):
            item.add_marker(pytest.mark.timeout(300), append=False)
