"""One fake server for the session, and both clients behind one face."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import tokenwire
from tokenwire.testing import FakeServer


@pytest.fixture(scope="session")
def shared_server() -> Iterator[FakeServer]:
    with FakeServer(["fake", "other", "team/third"], page_size=2) as server:
        yield server


@pytest.fixture
def server(shared_server: FakeServer) -> FakeServer:
    shared_server.reset()
    return shared_server


@pytest.fixture(scope="session")
def client(shared_server: FakeServer) -> Iterator[tokenwire.Client]:
    with tokenwire.Client(shared_server.target) as made:
        yield made


@pytest.fixture(scope="session")
async def aclient(shared_server: FakeServer) -> AsyncIterator[tokenwire.AsyncClient]:
    async with tokenwire.AsyncClient(shared_server.target) as made:
        yield made


class Flavour:
    """Calls one of the clients, so that a test need not be written twice."""

    def __init__(self, client: tokenwire.Client | tokenwire.AsyncClient) -> None:
        self.client: Any = client
        self.is_async = isinstance(client, tokenwire.AsyncClient)

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        function = getattr(self.client, method)
        return await (function(*args, **kwargs) if self.is_async else asyncio.to_thread(function, *args, **kwargs))

    async def read(self, stream: Any, deltas: list[Any]) -> None:
        """Reads a stream to its end into `deltas`, which holds what came even where it fails."""
        if self.is_async:
            async for delta in stream:
                deltas.append(delta)  # noqa: PERF401 - what came before a failure is to be kept
        else:
            await asyncio.to_thread(lambda: [deltas.append(delta) for delta in stream])

    async def close(self) -> None:
        if self.is_async:
            await self.client.close()
        else:
            self.client.close()


@pytest.fixture(params=["sync", "async"])
def flavour(request: pytest.FixtureRequest, client: tokenwire.Client, aclient: tokenwire.AsyncClient) -> Flavour:
    return Flavour(client if request.param == "sync" else aclient)


@pytest.fixture(params=["sync", "async"])
async def make_flavour(request: pytest.FixtureRequest, server: FakeServer) -> AsyncIterator[Any]:
    """Makes a client with arguments of the test's own."""
    kind = tokenwire.Client if request.param == "sync" else tokenwire.AsyncClient
    made: list[Flavour] = []

    def make(**kwargs: Any) -> Flavour:
        made.append(Flavour(kind(server.target, **kwargs)))
        return made[-1]

    yield make
    for one in made:
        await one.close()
