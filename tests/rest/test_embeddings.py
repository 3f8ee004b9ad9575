from __future__ import annotations

import base64
import struct
from typing import Any

import httpx
import pytest
from tests.rest.fake_backend import FakeBackend
from tests.rest.sse import check_envelope

from tokenwire_server.rest.openai.embeddings import read_embedding

BASE: dict[str, Any] = {"model": "mini", "input": "hi"}


@pytest.mark.parametrize("encoding", [None, "float"])
async def test_whole_reply(http: httpx.AsyncClient, backend: FakeBackend, encoding: str | None) -> None:
    response = await http.post("/v1/embeddings", json=BASE | {"input": ["a", "b"], "encoding_format": encoding})
    assert response.json() == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [0.25, -0.5, 0.0]},
            {"object": "embedding", "index": 1, "embedding": [0.25, -0.5, 1.0]},
        ],
        "model": "mini",
        "usage": {"prompt_tokens": 4, "total_tokens": 4},
    }


async def test_base64_is_little_endian_float32(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    reply = (await http.post("/v1/embeddings", json=BASE | {"encoding_format": "base64"})).json()
    assert base64.b64decode(reply["data"][0]["embedding"]) == struct.pack("<3f", 0.25, -0.5, 0.0)


@pytest.mark.parametrize(
    ("value", "texts", "ids"),
    [
        ("a", ["a"], [[]]),
        (["a", "b"], ["a", "b"], [[], []]),
        ([1, 2], [""], [[1, 2]]),
        ([[1], [2, 3]], ["", ""], [[1], [2, 3]]),
    ],
)
def test_input_forms(value: Any, texts: list[str], ids: list[list[int]]) -> None:
    inputs = read_embedding(BASE | {"input": value}).request.inputs
    assert [one.text for one in inputs] == texts
    assert [list(one.token_ids.ids) for one in inputs] == ids


def test_parameters() -> None:
    body = {"dimensions": 8, "truncate_prompt_tokens": 4, "priority": -1, "request_id": "r", "user": "u"}
    request = read_embedding(BASE | body).request
    assert (request.dimensions, request.truncate_prompt_tokens, request.priority) == (8, 4, -1)
    assert request.request_id == "r"


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"model": None}, "model", None),
        ({"input": None}, "input", "missing_required_parameter"),
        ({"input": ""}, "input", "empty_string"),
        ({"input": []}, "input", "empty_array"),
        ({"input": [[]]}, "input", "empty_array"),
        ({"input": ["a"] * 2049}, "input", "array_above_max_length"),
        ({"input": [-1]}, "input", "integer_below_min_value"),
        ({"dimensions": 0}, "dimensions", "integer_below_min_value"),
        ({"dimensions": -1}, "dimensions", "integer_below_min_value"),
        ({"encoding_format": "int8"}, "encoding_format", "invalid_value"),
        ({"normalize": False}, "normalize", "unsupported_parameter"),
        ({"embed_dtype": "float16"}, "embed_dtype", "unsupported_parameter"),
        ({"model": "nope"}, None, "model_not_found"),
    ],
)
async def test_mistakes(
    http: httpx.AsyncClient, backend: FakeBackend, body: dict[str, Any], param: str | None, code: str | None
) -> None:
    response = await http.post("/v1/embeddings", json=BASE | body)
    assert response.status_code == (404 if code == "model_not_found" else 400)
    error = check_envelope(response)
    assert (error["param"], error["code"]) == (param, code)
