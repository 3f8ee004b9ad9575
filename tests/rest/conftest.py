"""One real HTTP server a run, over a scripted backend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import openai
import pytest
from tests.rest.fake_backend import FakeBackend
from tests.rest.http_server import http_server

from tokenwire_server.rest import create_app

MAX_BODY_BYTES = 200_000
KEEP_ALIVE_S = 0.2
ORIGIN = "https://allowed.example"


class Readiness:
    """What the readiness probe finds."""

    value = True

    async def __call__(self) -> bool:
        return self.value


@pytest.fixture(scope="session")
def shared_backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture(scope="session")
def readiness() -> Readiness:
    return Readiness()


@pytest.fixture(scope="session")
async def port(shared_backend: FakeBackend, readiness: Readiness) -> AsyncIterator[int]:
    app = create_app(
        shared_backend,
        version="1.2.3",
        max_body_bytes=MAX_BODY_BYTES,
        ready=readiness,
        keep_alive_s=KEEP_ALIVE_S,
        cors_origins=[ORIGIN],
    )
    async with http_server(app) as port:
        yield port


@pytest.fixture
def backend(shared_backend: FakeBackend) -> Iterator[FakeBackend]:
    shared_backend.reset()
    yield shared_backend
    assert shared_backend.running == 0


@pytest.fixture(scope="session")
async def http(port: int) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10, trust_env=False) as client:
        yield client


@pytest.fixture(scope="session")
async def sdk(port: int) -> AsyncIterator[openai.AsyncOpenAI]:
    inner = openai.DefaultAsyncHttpxClient(trust_env=False)
    url = f"http://127.0.0.1:{port}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="sk-test", max_retries=0, http_client=inner) as client:
        yield client
