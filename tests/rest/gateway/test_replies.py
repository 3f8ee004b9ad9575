from __future__ import annotations

import json
import math
from typing import Any

import httpx
import pytest
from google.protobuf import any_pb2, duration_pb2, json_format
from google.rpc import code_pb2, status_pb2
from tests.rest.gateway.conftest import Mirror
from tests.rest.gateway.contract import message_class

from tokenwire_server.errors import REASONS, StatusError
from tokenwire_server.rest.gateway_replies import HTTP_STATUS
from tokenwire_server.rest.transcoding.encode import JsonWriter

FULL: dict[str, Any] = {
    "name": "x\u2028",
    "count": -3,
    "bigNumber": "9007199254740993",
    "u": 4,
    "ratio": 0.1,
    "small": 0.1,
    "flag": True,
    "blob": "+/8=",
    "color": "COLOR_RED",
    "tags": ["a"],
    "colors": ["COLOR_BLUE", 9],
    "inner": {"a": "", "b": "0", "deeper": None},
    "labels": {"k": "v"},
    "weights": {"-1": "NaN", "7": 2.5},
    "text": "t",
    "maybe": 0,
    "wait": "1.500s",
    "at": "2026-08-01T10:00:00Z",
    "mask": "a,bC",
    "wrapped": "",
    "data": {"a": [1.0, None, "x"]},
    "value": None,
    "inners": [{"a": "1", "b": "2", "deeper": {"a": "", "b": "0", "deeper": None}}],
    "wide": "18446744073709551615",
    "timeout": None,
    "switches": {"false": {"a": "n", "b": "0", "deeper": None}, "true": {"a": "y", "b": "0", "deeper": None}},
    "wrappedNumber": "5",
    "wrappedFlag": False,
    "floats": [0.3, 1e10, 16777216.0, 3.402823e38, "Infinity", -0.0],
    "bigs": ["1"],
}


def test_everything_as_json() -> None:
    message = json_format.ParseDict(FULL, message_class("Everything")())
    message.value.null_value = 0
    written = JsonWriter().value(message)
    assert written == FULL
    names = [field.json_name for field in message.DESCRIPTOR.fields if field.json_name in FULL]
    assert list(written) == names  # in the contract's order


def test_unset_is_shown() -> None:
    written = JsonWriter().value(message_class("Everything")())
    assert written == {
        "name": "",
        "count": 0,
        "bigNumber": "0",
        "u": 0,
        "ratio": 0.0,
        "small": 0.0,
        "flag": False,
        "blob": "",
        "color": "COLOR_UNSPECIFIED",
        "tags": [],
        "colors": [],
        "inner": None,
        "labels": {},
        "weights": {},
        "wait": None,
        "at": None,
        "mask": None,
        "wrapped": None,
        "data": None,
        "value": None,
        "inners": [],
        "wide": "0",
        "timeout": None,
        "switches": {},
        "wrappedNumber": None,
        "wrappedFlag": None,
        "floats": [],
        "bigs": [],
    }


def test_the_same_as_protobufs_own_writer_but_for_the_nulls() -> None:
    message = json_format.ParseDict(FULL, message_class("Everything")())
    theirs = json_format.MessageToDict(message, always_print_fields_with_no_presence=True)
    mine = JsonWriter().value(message)
    assert json.loads(json.dumps(theirs)) == _without_nulls(mine)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict) and set(value) != {"a"}:
        return {key: _without_nulls(one) for key, one in value.items() if one is not None or key == "value"}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-40, 123456.79, 3.402823e38, -0.0, 5e-324])
def test_floats_read_back_the_same(value: float) -> None:
    message = message_class("Everything")(small=value if abs(value) > 1e-45 else 0, ratio=value)
    written = JsonWriter().value(message)
    again = json_format.ParseDict(written, message_class("Everything")())
    assert math.copysign(1, again.small) == math.copysign(1, message.small)
    assert (again.small, again.ratio) == (message.small, message.ratio)


def test_any_in_an_answer() -> None:
    writer, packed = JsonWriter(), any_pb2.Any()
    assert writer.value(packed) == {}
    packed.Pack(duration_pb2.Duration(seconds=1))
    assert writer.value(packed) == {"@type": "type.googleapis.com/google.protobuf.Duration", "value": "1s"}
    packed.Pack(message_class("Inner")(a="x"))
    kind = "type.googleapis.com/tokenwire.gatewaytest.v1.Inner"
    assert writer.value(packed) == {"@type": kind, "a": "x", "b": "0", "deeper": None}
    packed.type_url = "type.googleapis.com/nobody.Knows"
    assert writer.value(packed)["value"]


@pytest.mark.parametrize("path", ["/test/v1/query/1", "/test/v1/watch", "/test/v1/watch?alt=sse"])
async def test_metadata_comes_back(web: httpx.AsyncClient, mirror: Mirror, path: str) -> None:
    mirror.reply_metadata = [("x-thing", "a"), ("x-raw-bin", b"\xff")]
    response = await web.get(path, headers={"grpc-metadata-x-request-id": "mine"})
    assert response.headers["grpc-metadata-x-thing"] == "a"
    assert response.headers["grpc-metadata-x-raw-bin"] == "/w=="
    assert response.headers["x-request-id"] == "mine"
    assert mirror.call.request_id == "mine"


async def test_unary_headers(web: httpx.AsyncClient) -> None:
    response = await web.get("/test/v1/query/1?name=\u2028", headers={"x-request-id": "mine"})
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"] == "mine"
    assert b"\\u2028" in response.content


async def test_http_body_passes_as_it_is(web: httpx.AsyncClient) -> None:
    response = await web.get("/test/v1/raw")
    assert (response.headers["content-type"], response.content) == ("text/csv", b"a,b\n")


@pytest.mark.parametrize("code", sorted(HTTP_STATUS))
async def test_status_of_each_code(web: httpx.AsyncClient, mirror: Mirror, code: int) -> None:
    if code == code_pb2.OK:
        return
    mirror.raises = StatusError(status_pb2.Status(code=code, message="no\nway"))
    response = await web.get("/test/v1/query/1")
    assert response.status_code == HTTP_STATUS[code]
    assert response.json() == {"code": code, "message": "no\nway", "details": []}
    assert response.headers.get("www-authenticate") == ("no?way" if code == code_pb2.UNAUTHENTICATED else None)


async def test_details_and_retry_after(web: httpx.AsyncClient, mirror: Mirror) -> None:
    mirror.raises = StatusError.retry_later("QUEUE_FULL", "Full.", 1.2)
    response = await web.get("/test/v1/query/1")
    assert (response.status_code, response.headers["retry-after"]) == (429, "2")
    assert response.json() == {
        "code": 8,
        "message": "Full.",
        "details": [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "QUEUE_FULL",
                "domain": "tokenwire.dev",
                "metadata": {},
            },
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.200s"},
        ],
    }


@pytest.mark.parametrize("reason", list(REASONS))
async def test_http_status_comes_from_the_grpc_code(web: httpx.AsyncClient, mirror: Mirror, reason: str) -> None:
    mirror.raises = StatusError.of(reason, "No.")
    assert (await web.get("/test/v1/query/1")).status_code == HTTP_STATUS[REASONS[reason].grpc_code]


@pytest.mark.parametrize("path", ["/test/v1/query/1", "/test/v1/watch"])
async def test_foreign_text_stays_inside(
    web: httpx.AsyncClient, mirror: Mirror, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    mirror.raises, mirror.messages = RuntimeError("secret-token-123"), 0
    response = await web.get(path)
    assert response.status_code == 500
    assert response.headers["x-request-id"] in response.text
    assert "secret" not in response.text
    assert "secret-token-123" in caplog.text


def lines(response: httpx.Response) -> list[Any]:
    assert response.headers["content-type"] == "application/json"
    assert response.text.endswith("\n")
    return [json.loads(line) for line in response.text.splitlines()]


def sse(response: httpx.Response) -> list[Any]:
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    frames = response.text.split("\n\n")
    assert frames.pop() == ""
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


async def test_stream(web: httpx.AsyncClient) -> None:
    found = lines(await web.get("/test/v1/watch?name=a\u2028b"))
    assert [one["result"]["count"] for one in found] == [0, 1]
    assert found[0]["result"]["inner"] is None


@pytest.mark.parametrize("how", ["accept", "alt"])
async def test_stream_as_server_sent_events(web: httpx.AsyncClient, how: str) -> None:
    headers = {"accept": "application/json, text/event-stream;q=0.9"} if how == "accept" else {}
    found = sse(await web.get("/test/v1/watch" + ("?alt=sse" if how == "alt" else ""), headers=headers))
    assert [one["result"]["count"] for one in found] == [0, 1]


@pytest.mark.parametrize("alt", ["", "?alt=sse"])
@pytest.mark.parametrize("messages", [0, 2])
async def test_error_of_a_stream(web: httpx.AsyncClient, mirror: Mirror, messages: int, alt: str) -> None:
    mirror.raises, mirror.messages = StatusError.of("MODEL_NOT_FOUND", "None such."), messages
    response = await web.get(f"/test/v1/watch{alt}")
    assert response.status_code == (200 if messages else 404)
    found = (sse if alt else lines)(response)
    assert len(found) == messages + 1
    assert set(found[-1]) == {"error"}
    assert (found[-1]["error"]["code"], found[-1]["error"]["message"]) == (5, "None such.")


async def test_a_stream_that_is_not_begun_has_the_unary_error(web: httpx.AsyncClient) -> None:
    response = await web.get("/test/v1/watch?count=x")
    assert response.status_code == 400
    assert set(response.json()) == {"code", "message", "details"}


async def test_empty_stream(web: httpx.AsyncClient, mirror: Mirror) -> None:
    mirror.messages = 0
    response = await web.get("/test/v1/watch")
    assert (response.status_code, response.content) == (200, b"")


async def test_key(web: httpx.AsyncClient, mirror: Mirror) -> None:
    mirror.key = "k"
    refused = await web.get("/test/v1/query/1")
    assert (refused.status_code, refused.json()["code"]) == (401, 16)
    assert refused.headers["www-authenticate"] == "The API key is missing.?"
    assert (await web.get("/test/v1/nothing")).status_code == 401
    assert set((await web.get("/test/v1/watch")).json()) == {"error"}
    assert (await web.get("/test/v1/query/1", headers={"authorization": "Bearer k"})).status_code == 200
    named = {"grpc-metadata-authorization": "Bearer k"}
    assert (await web.get("/test/v1/query/1", headers=named)).status_code == 200
