"""Whatever a body holds, the answer is never a 5xx of ours: valid requests with parts replaced, from a fixed seed."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.conftest import EchoServer
from tests.rest.fake_backend import FakeBackend, Script

from tokenwire_server.backend import contract_services
from tokenwire_server.rest import create_app
from tokenwire_server.rest.openapi import build_document
from tokenwire_server.rest.transcoding.routes import routes_of

EACH = 150
ALLOWED = {200, 400, 404, 501}

VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        7,
        129,
        2**31,
        2**63,
        10**400,
        1e308,
        -0.5,
        1.5,
        "",
        "a",
        "auto",
        "none",
        "1s",
        "base64",
    ),
    *("\0", "\u2028", "é" * 300, [], [1], ["a"], [None], [[]], [[1, 2]], {}, {"1": 1}, {"a": {"b": [1, {}]}}),
    *({"type": "function"}, {"type": "json_schema"}, {"type": "function", "function": {"name": "f"}}, {"name": "f"}),
    *([{"role": "user", "content": "x"}], [{"type": "text", "text": "x"}], [{"type": "tool_use", "id": "x"}]),
    *([{"role": "ROLE_USER", "content": [{"text": "x"}]}], [{"type": "input_text", "text": "q"}], {"text": {"x": 1}}),
)
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "/v1/chat/completions": (
        "ChatCompletionRequest",
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c", "content": "1"},
            ],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        },
    ),
    "/v1/completions": ("CompletionRequest", {"prompt": "hi there"}),
    "/v1/embeddings": ("EmbeddingRequest", {"input": "x"}),
    "/v1/responses": (
        "ResponseRequest",
        {
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "u"}]},
                {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "w"}]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "1"},
            ],
            "text": {"format": {"type": "text"}},
            "tools": [{"type": "function", "name": "f", "parameters": {}}],
        },
    ),
    "/v1/messages": (
        "MessageRequest",
        {
            "max_tokens": 5,
            "system": [{"type": "text", "text": "s"}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "u"}]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]},
            ],
            "tools": [{"name": "f", "input_schema": {}}],
            "thinking": {"type": "enabled", "budget_tokens": 5},
        },
    ),
    "/v1/messages/count_tokens": ("CountTokensRequest", {"messages": [{"role": "user", "content": "x"}]}),
    "/tokenize": ("TokenizeRequest", {"prompt": "x y"}),
    "/detokenize": ("DetokenizeRequest", {"tokens": [1, 2]}),
}
NATIVE: dict[str, Any] = {
    "messages": [{"role": "ROLE_USER", "content": [{"text": "x"}]}],
    "sampling": {"maxTokens": 3},
    "text": "x",
    "inputs": [{"text": "q"}],
    "tokenIds": [1],
    "adapter": "z",
}
ROUTES = [route for route in routes_of(contract_services().values()) if route.body]


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _places(value[key], (*path, key))


def _changed(body: dict[str, Any], names: list[str], dice: random.Random) -> dict[str, Any]:
    body = copy.deepcopy(body)
    for _ in range(dice.randint(1, 3)):
        places = list(_places(body))
        place = dice.choice(places) if places and dice.random() < 0.5 else (dice.choice(names),)
        owner: Any = body
        for key in place[:-1]:
            owner = owner[key]
        owner[place[-1]] = copy.deepcopy(dice.choice(VALUES))
    return body


async def _send(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> None:
    response = await client.post(path, content=json.dumps(body))
    assert response.status_code in ALLOWED, f"{body}: {response.text}"
    assert "nternal error" not in response.text, f"{body}: {response.text}"


@pytest.mark.parametrize("path", BODIES)
async def test_openai_surface(http: httpx.AsyncClient, backend: FakeBackend, path: str) -> None:
    app = create_app(backend, version="x")  # in process: the bytes are not what is tested
    if path != "/v1/completions":
        backend.script = Script(reasoning="hm", tool_calls=(("f", "{}"),))
    schema, body = BODIES[path]
    names = list(build_document("x")["components"]["schemas"][schema]["properties"])
    dice = random.Random(path)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://x.example") as client:
        for number in range(EACH):
            model = "mini" if path == "/v1/embeddings" else "org/tiny"
            await _send(client, path, _changed({"model": model, "stream": number % 3 == 0, **body}, names, dice))


@pytest.mark.parametrize("route", ROUTES, ids=[f"{route.rpc.name} {route.path}" for route in ROUTES])
async def test_gateway(echo_server: EchoServer, route: Any) -> None:
    app = create_app(echo_server.service, version="x")
    names = [field.json_name for field in route.rpc.input_type.fields]
    body = {key: value for key, value in NATIVE.items() if key in names}
    dice = random.Random(route.path)
    path = route.path.replace("{model=**}", "echo")
    if route.rpc.name == "CancelRequests":
        names = ["requestIds"]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://x.example") as client:
        for _ in range(EACH // 3):
            await _send(client, path, _changed(body, names, dice) if names else body)
