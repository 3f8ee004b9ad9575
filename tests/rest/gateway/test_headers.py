from __future__ import annotations

import time
from typing import Any

import httpx
import pytest
from tests.rest.gateway.conftest import Mirror

from tokenwire_server.rest.transcoding.headers import grpc_timeout_s, request_metadata


@pytest.mark.parametrize(
    ("headers", "pairs"),
    [
        ([("authorization", "Bearer k")], [("authorization", "Bearer k"), ("grpcgateway-authorization", "Bearer k")]),
        ([("grpc-metadata-x-app", "a"), ("grpc-metadata-x-app", "b")], [("x-app", "a"), ("x-app", "b")]),
        ([("user-agent", "u"), ("accept", "a")], [("grpcgateway-user-agent", "u"), ("grpcgateway-accept", "a")]),
        ([("x-other", "dropped"), ("connection", "close")], []),
        ([("grpc-metadata-data-bin", "/w==")], [("data-bin", b"\xff")]),
        ([("grpc-metadata-data-bin", "/w")], [("data-bin", b"\xff")]),
        ([("grpc-metadata-bad", "ü"), ("grpc-metadata-b@d", "x")], []),  # no valid pair: skipped
        ([("traceparent", "t"), ("tracestate", "s"), ("x-request-id", "r")], None),
    ],
)
def test_request_metadata(headers: list[tuple[str, str]], pairs: Any) -> None:
    assert request_metadata(headers) == (headers if pairs is None else pairs)


def test_forwarded() -> None:
    plain = request_metadata([("host", "h.example")], "198.51.100.1")
    assert plain[1:] == [("x-forwarded-host", "h.example"), ("x-forwarded-for", "198.51.100.1")]
    headers = [("host", "h"), ("x-forwarded-host", "front"), ("x-forwarded-for", "192.0.2.1")]
    passed = request_metadata(headers, "198.51.100.1")
    assert passed[1:] == [("x-forwarded-host", "front"), ("x-forwarded-for", "192.0.2.1, 198.51.100.1")]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1H", 3600), ("2M", 120), ("3S", 3), ("500m", 0.5), ("7u", 7e-6), ("9n", 9e-9), ("0S", None), ("-1S", -1)],
)
def test_grpc_timeout(text: str, seconds: float | None) -> None:
    assert grpc_timeout_s(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("text", ["", "S", "5", "5s", "1.5S", "xS", "5 S", "99999999999999999999S"])
async def test_bad_grpc_timeout(web: httpx.AsyncClient, text: str) -> None:
    response = await web.get("/test/v1/query/1", headers={"grpc-timeout": text})
    assert response.status_code == 400
    assert response.json()["message"].startswith("invalid grpc-timeout")


async def test_bad_binary_header(web: httpx.AsyncClient) -> None:
    response = await web.get("/test/v1/query/1", headers={"grpc-metadata-x-bin": "*"})
    assert response.status_code == 400
    assert "invalid binary header" in response.json()["message"]


async def test_deadline(web: httpx.AsyncClient, mirror: Mirror) -> None:
    before = time.monotonic()
    await web.get("/test/v1/query/1", headers={"grpc-timeout": "2500m"})
    assert mirror.call.deadline is not None
    assert before + 2.5 <= mirror.call.deadline <= time.monotonic() + 2.5
    assert mirror.request.timeout.ToMilliseconds() == 2500
    await web.get("/test/v1/query/1?timeout=1s", headers={"grpc-timeout": "2S"})
    assert mirror.request.timeout.ToMilliseconds() == 1000  # the smaller one
    await web.get("/test/v1/query/1")
    assert mirror.call.deadline is None
    assert not mirror.request.HasField("timeout")


async def test_call_context(web: httpx.AsyncClient, mirror: Mirror) -> None:
    headers = {"authorization": "Bearer k", "traceparent": "00-a-b-01", "grpc-metadata-application": "app"}
    response = await web.get("/test/v1/query/1", headers=headers | {"x-request-id": "job.1"})
    call = mirror.call
    assert (call.api_key, call.traceparent, call.request_id) == ("k", "00-a-b-01", "job.1")
    assert response.headers["x-request-id"] == "job.1"
    assert ("application", "app") in call.metadata
    assert ("x-forwarded-for", "203.0.113.9") in call.metadata
    await web.post("/test/v1/all/n", json={"count": 1})
    assert mirror.call.request_size == len(b'{"count":1}')
