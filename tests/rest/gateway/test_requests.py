from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from google.protobuf import json_format
from google.rpc import error_details_pb2
from tests.rest.gateway.conftest import MAX_BODY_BYTES, Mirror
from tests.rest.gateway.contract import message_class

from tokenwire_server.rest.transcoding.values import ValueProblemError, parse_duration

assert error_details_pb2  # details are read from the pool by name


def expected(**fields: Any) -> Any:
    return json_format.ParseDict(fields, message_class("Everything")())


QUERIES: list[tuple[str, dict[str, Any]]] = [
    ("name=x", {"name": "x"}),
    ("name=", {}),
    ("big_number=-9223372036854775808", {"bigNumber": "-9223372036854775808"}),
    ("bigNumber=%2B7", {"bigNumber": "7"}),  # the contract's name and the JSON name alike
    ("u=4294967295&wide=18446744073709551615", {"u": 4294967295, "wide": "18446744073709551615"}),
    ("ratio=1e-3&small=.5", {"ratio": 0.001, "small": 0.5}),
    ("ratio=-inf", {"ratio": "-Infinity"}),
    *((f"flag={text}", {"flag": True}) for text in ("1", "t", "T", "TRUE", "true", "True")),
    *((f"flag={text}", {}) for text in ("0", "f", "F", "FALSE", "false", "False")),
    ("blob=%2B%2F8%3D", {"blob": "+/8="}),
    ("blob=-_8=", {"blob": "+/8="}),
    ("color=COLOR_RED", {"color": 1}),
    ("color=2", {"color": 2}),
    ("tags=a&tags=b&tags=", {"tags": ["a", "b", ""]}),
    ("colors=1&colors=COLOR_BLUE", {"colors": [1, 2]}),
    ("inner.a=x&inner.b=3", {"inner": {"a": "x", "b": 3}}),
    ("inner.deeper.deeper.a=x", {"inner": {"deeper": {"deeper": {"a": "x"}}}}),
    ("labels[k]=v&labels[k%202]=w", {"labels": {"k": "v", "k 2": "w"}}),
    ("weights[7]=1.5", {"weights": {"7": 1.5}}),
    ("text=hi", {"text": "hi"}),
    ("nested.a=1&nested.b=2", {"nested": {"a": "1", "b": 2}}),
    ("maybe=0", {"maybe": 0}),
    ("wait=1.5s", {"wait": "1.5s"}),
    ("wait=1h2m3s4ms", {"wait": "3723.004s"}),
    ("wait=-2m", {"wait": "-120s"}),
    ("at=2026-08-01T10:00:00.25%2B02:00", {"at": "2026-08-01T08:00:00.25Z"}),
    ("mask=a,b.c", {"mask": "a,b.c"}),
    ("wrapped=&wrapped_number=0&wrappedFlag=T", {"wrapped": "", "wrappedNumber": 0, "wrappedFlag": True}),
    ('data={"a":[1,null]}', {"data": {"a": [1, None]}}),
    ("value=[1]", {"value": [1]}),
    ("unknown=1&inner.unknown=2&unknown.deep=3&alt=json", {"inner": {}}),
    ("count=99", {}),  # the path has it
]


@pytest.mark.parametrize(("query", "fields"), QUERIES, ids=[query for query, _ in QUERIES])
async def test_query(web: httpx.AsyncClient, mirror: Mirror, query: str, fields: dict[str, Any]) -> None:
    response = await web.get(f"/test/v1/query/5?{query}")
    assert response.status_code == 200, response.text
    assert mirror.request == expected(count=5, **fields)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("name=a&name=b", 'too many values for field "name": a, b'),
        ("big_number=x", 'parsing field "big_number": "x" is not an integer'),
        ("big_number=9223372036854775808", "out of range"),
        ("big_number=1_0", "is not an integer"),
        ("u=-1", "is not an integer"),
        ("ratio=1_0", "is not a number"),
        ("small=1e39", "out of range"),
        ("flag=yes", 'parsing field "flag": "yes" is not a boolean'),
        ("blob=*", 'parsing field "blob"'),
        ("color=GREEN", 'parsing field "color": "GREEN" is not a valid value'),
        ("color=7", "is not a valid value"),
        ("colors=1&colors=x", 'parsing list "colors"'),
        ("inner=x", "unsupported message type"),
        ("inners=x", "unsupported message type"),
        ("name.a=x", 'invalid path: "name" is not a message'),
        ("inners.a=x", 'invalid path: "inners" is not a message'),
        ("text=a&number=1", 'field already set for oneof "pick"'),
        ("labels=v", "more than one value provided for key"),
        ("labels[k]=v&labels[k]=w", "more than one value provided for key"),
        ("weights[x]=1", 'parsing map key "key"'),
        ("weights[1]=x", 'parsing map value "value"'),
        ("wait=5", "is not a duration"),
        ("wait=1.5", "is not a duration"),
        ("at=yesterday", "RFC 3339"),
        ("at=2026-02-30T00:00:00Z", "RFC 3339"),
        ("data=[1]", "not the JSON"),
        ("data=" + quote('{"a":' * 101 + "1" + "}" * 101), "nested too deeply"),
        ("name=%ff", "query is not valid"),
        ("name=%zz", "invalid URL escape"),
        ("name=a;b", "invalid semicolon separator"),
    ],
)
async def test_bad_query(web: httpx.AsyncClient, query: str, words: str) -> None:
    response = await web.get(f"/test/v1/query/5?{query}")
    body = response.json()
    assert (response.status_code, body["code"]) == (400, 3)
    assert words in body["message"]
    kinds = [detail["@type"].rpartition(".")[2] for detail in body["details"]]
    assert kinds == ["ErrorInfo", "BadRequest"]


async def test_bad_path_value(web: httpx.AsyncClient) -> None:
    body = (await web.get("/test/v1/query/many")).json()
    assert body["message"] == 'type mismatch, parameter: count, error: "many" is not an integer'
    assert body["details"][1]["fieldViolations"][0]["field"] == "count"


async def test_body_path_and_query_in_their_order(web: httpx.AsyncClient, mirror: Mirror) -> None:
    # `*`: the path overwrites the body, the query is not read.
    await web.post("/test/v1/all/path?count=3", json={"name": "body", "ratio": 1, "unknown": {"a": 1}})
    assert mirror.request == expected(name="path", ratio=1)
    # A field: the body is that field; the query may not touch it.
    await web.post("/test/v1/field/n?inner.a=query&inner.b=3&count=7&name=q", json={"a": "body"})
    assert mirror.request == expected(name="n", inner={"a": "body"}, count=7)
    await web.post("/test/v1/path/p?inner.b=4", json={"a": "body", "b": "9"})
    assert mirror.request == expected(inner={"a": "p", "b": 9})
    # A member of a oneof that both fill is the path's; another member of it is an error.
    await web.post("/test/v1/text/path", json={"text": "body"})
    assert mirror.request == expected(text="path")
    assert (await web.post("/test/v1/text/path", json={"number": 1})).status_code == 400
    # No body: it is ignored.
    await web.request("GET", "/test/v1/query/1", content=b"{not json")
    assert mirror.request == expected(count=1)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"", {}),
        (b" \n", {}),
        (b"{}", {}),
        (b'{"big_number": "5", "bigs": ["1", 2]}', {"bigNumber": 5, "bigs": [1, 2]}),
        (b'{"bigNumber": 5}', {"bigNumber": 5}),
        (b'{"color": "COLOR_RED", "colors": [2]}', {"color": 1, "colors": [2]}),
        (b'{"maybe": null, "inner": null}', {}),
        (b'{"count": 1} trailing {"count": 2}', {"count": 1}),  # only the first value is read
        ('{"name": "ü"}'.encode(), {"tags": []}),
        (b'{"text": "a", "number": null}', {"text": "a"}),
    ],
)
async def test_body(web: httpx.AsyncClient, mirror: Mirror, body: bytes, fields: dict[str, Any]) -> None:
    # Whatever the content type says.
    response = await web.post("/test/v1/all/n", content=body, headers={"content-type": "text/plain"})
    assert response.status_code == 200, response.text
    assert mirror.request == expected(name="n", **fields)


@pytest.mark.parametrize(
    "body",
    [
        *(b"[]", b"null", b"1", b'"x"', b"{", b"nope", b'{"count": "x"}', b'{"count": 1.5}', b'{"count": NaN}'),
        *(b'{"tags": "x"}', b'{"inner": 1}', b'{"inner": []}', b'{"color": "GREEN"}', b'{"blob": 3}'),
        *(
            b'{"count": 1, "count": 2}',
            b'{"bigNumber": 1, "big_number": 1}',
            b'{"text": "a", "number": 1}',
            b'{"name": "\\ud800"}',
            b'\xff{"a": 1}',
        ),
        *(b'{"bigNumber": 1e30}', b'{"ratio": 1e400}', b'{"labels": [1]}', b'{"tags": [null]}', b'{"wait": "5"}'),
        *(b'{"count": ' + b"9" * 5000 + b"}", b'{"at": 3}', b'{"data": 3}', b'{"wrapped": 3}', b'{"mask": 3}'),
        b'{"inner": {"deeper": {"b": "x"}}}',
    ],
)
async def test_bad_body(web: httpx.AsyncClient, mirror: Mirror, body: bytes) -> None:
    response = await web.post("/test/v1/all/n", content=body)
    assert (response.status_code, response.json()["code"]) == (400, 3), response.text
    assert "Parse" not in response.text  # the decoder's own words stay inside
    assert mirror.request is None


async def test_bad_body_names_the_field(web: httpx.AsyncClient) -> None:
    body = (await web.post("/test/v1/all/n", json={"inners": [{}, {"deeper": {"b": "x"}}]})).json()
    assert body["details"][1]["fieldViolations"][0]["field"] == "inners[1].deeper.b"
    body = (await web.post("/test/v1/all/n", json={"bigNumber": "x"})).json()
    assert body["message"] == "the value of big_number does not fit tokenwire.gatewaytest.v1.Everything"


async def test_body_fields_that_are_no_message(web: httpx.AsyncClient, mirror: Mirror) -> None:
    assert (await web.put("/test/v1/tags?name=q", json=["a", "b"])).json() == ["a", "b"]
    assert mirror.request == expected(name="q", tags=["a", "b"])
    assert (await web.put("/test/v1/tags", json={"tags": []})).status_code == 400
    assert (await web.patch("/test/v1/value", json=[1, {"a": None}])).json() == [1, {"a": None}]


async def test_nesting_is_bounded_before_parsing(web: httpx.AsyncClient, mirror: Mirror) -> None:
    def nested(levels: int) -> bytes:
        return b'{"data": ' + b'{"a": ' * (levels - 1) + b"1" + b"}" * levels

    assert (await web.post("/test/v1/all/n", content=nested(49))).status_code == 200
    deep = await web.post("/test/v1/all/n", content=nested(101))
    assert "nested more than 100 levels" in deep.json()["message"]
    assert (await web.post("/test/v1/all/n", content=b"[" * 50_000)).status_code == 400
    many = json.dumps({"name": "[" * 500, "inners": [{}] * 500})
    assert (await web.post("/test/v1/all/n", content=many)).status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
async def test_size_is_bounded(web: httpx.AsyncClient, mirror: Mirror, chunked: bool) -> None:
    async def pieces() -> Any:
        for _ in range(12):
            yield b"x" * (MAX_BODY_BYTES // 10)

    content = pieces() if chunked else b"x" * (MAX_BODY_BYTES + 1)
    response = await web.post("/test/v1/all/n", content=content)
    assert (response.status_code, response.json()["code"]) == (429, 8)
    assert response.json()["details"][0]["reason"] == "REQUEST_TOO_LARGE"
    assert mirror.request is None


async def test_any_is_refused(web: httpx.AsyncClient, mirror: Mirror) -> None:
    assert (await web.post("/test/v1/any", json={"name": "x"})).json() == {"name": "x", "detail": None}
    detail = {"@type": "type.googleapis.com/google.protobuf.Duration", "value": "1s"}
    response = await web.post("/test/v1/any", json={"detail": detail})
    assert response.status_code == 400
    assert "Any is not taken" in response.json()["message"]


@pytest.mark.parametrize(
    ("text", "nanos"),
    [("0", 0), ("-0", 0), ("1ns", 1), (".5s", 5 * 10**8), ("1.s", 10**9), ("2us3µs", 5000), ("+1m", 60 * 10**9)],
)
def test_durations(text: str, nanos: int) -> None:
    assert parse_duration(text) == nanos


@pytest.mark.parametrize("text", ["", "s", "1", "1x", "1s ", " 1s", "1.2.3s", "--1s", "9999999999h", "٣s"])
def test_bad_durations(text: str) -> None:
    with pytest.raises(ValueProblemError):
        parse_duration(text)
