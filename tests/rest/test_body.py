from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest
from tests.rest.conftest import MAX_BODY_BYTES
from tests.rest.fake_backend import FakeBackend
from tests.rest.sse import check_envelope

UNPARSED = "We could not parse the JSON body of your request."
GOOD = json.dumps({"model": "org/tiny", "messages": [{"role": "user", "content": "hi"}]}).encode()
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b"\xff\xfe",
        b'{"model":"\xed\xa0\x80"}',
        b'{"model":"org/tiny","messages":[{"role":"user","content":"\\ud800"}]}',
        b'{"model":"org/tiny","messages":[{"role":"user","content":"hi"}],"temperature":NaN}',
        b'{"model":"org/tiny","messages":[{"role":"user","content":"hi"}],"temperature":Infinity}',
        b'{"model":"org/tiny","messages":[{"role":"user","content":"hi"}],"temperature":1e999}',
        b'{"a":' + b"[" * 128 + b"]" * 128 + b"}",
        b'{"a":' + b"[" * 90_000 + b"]" * 90_000 + b"}",
        b'{"a":' * 500 + b"1" + b"}" * 500,
    ],
    ids=lambda body: repr(body[:24]),
)
async def test_what_is_not_a_json_object(http: httpx.AsyncClient, backend: FakeBackend, body: bytes) -> None:
    response = await http.post("/v1/chat/completions", content=body, headers=JSON)
    assert response.status_code == 400
    assert check_envelope(response) == {
        "message": UNPARSED,
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }


async def test_many_brackets_are_not_depth(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    body = GOOD[:-1] + b',"metadata":' + json.dumps({"a": [[1]] * 200}).encode() + b"}"
    assert (await http.post("/v1/chat/completions", content=body, headers=JSON)).status_code == 200


async def test_body_too_large_by_its_header(port: int, backend: FakeBackend) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1)
    )
    head = await reader.readuntil(b"\r\n\r\n")  # answered before a byte of the body was sent
    assert head.startswith(b"HTTP/1.1 413 ")
    writer.close()
    await writer.wait_closed()


async def test_body_too_large_while_reading(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 10_000 + 2):
            yield b" " * 10_000

    response = await http.post("/v1/chat/completions", content=endless(), headers=JSON)
    assert response.status_code == 413
    error = check_envelope(response)
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "request_too_large", None)


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"])
async def test_other_content_types(http: httpx.AsyncClient, backend: FakeBackend, kind: str) -> None:
    response = await http.post("/v1/chat/completions", content=GOOD, headers={"content-type": kind})
    assert response.status_code == 415
    assert check_envelope(response)["code"] == "unsupported_content_type"


@pytest.mark.parametrize("kind", [None, "application/json; charset=utf-8", "Application/JSON", "application/x+json"])
async def test_json_content_types(http: httpx.AsyncClient, backend: FakeBackend, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    assert (await http.post("/v1/chat/completions", content=GOOD, headers=headers)).status_code == 200


async def test_compressed_bodies_are_refused(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    response = await http.post("/v1/chat/completions", content=GOOD, headers=JSON | {"content-encoding": "gzip"})
    assert response.status_code == 415
    assert check_envelope(response)["code"] == "unsupported_content_type"
