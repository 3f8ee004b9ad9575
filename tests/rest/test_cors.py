from __future__ import annotations

import httpx
import pytest
from tests.rest.conftest import ORIGIN
from tests.rest.fake_backend import FakeBackend

CHAT = {"model": "org/tiny", "messages": [{"role": "user", "content": "hi"}]}
ASKS = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
NATIVE = "/tokenwire/v1/models"


@pytest.mark.parametrize("path", ["/v1/chat/completions", NATIVE, "/nothing"])
async def test_preflight(http: httpx.AsyncClient, backend: FakeBackend, path: str) -> None:
    backend.keys = frozenset({"k"})  # a preflight cannot send one
    answer = await http.options(path, headers={"origin": ORIGIN, **ASKS})
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert answer.headers["access-control-allow-headers"] == "authorization"
    assert "access-control-allow-credentials" not in answer.headers
    assert answer.headers["x-request-id"]
    other = await http.options(path, headers={"origin": "https://evil.example", **ASKS})
    assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize("stream", [False, True])
async def test_answers_name_the_origin(http: httpx.AsyncClient, backend: FakeBackend, stream: bool) -> None:
    answer = await http.post("/v1/chat/completions", json=CHAT | {"stream": stream}, headers={"origin": ORIGIN})
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "x-request-id" in answer.headers["access-control-expose-headers"]
    assert "Origin" in answer.headers["vary"]
    refused = await http.post("/v1/chat/completions", json=CHAT, headers={"origin": "https://evil.example"})
    assert "access-control-allow-origin" not in refused.headers


async def test_errors_name_it_too(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.keys = frozenset({"k"})
    for path in ("/v1/models", NATIVE):
        answer = await http.get(path, headers={"origin": ORIGIN})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (401, ORIGIN)
