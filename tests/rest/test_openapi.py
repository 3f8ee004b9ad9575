from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from tests.rest.fake_backend import FakeBackend

from tokenwire_server.backend import contract_services
from tokenwire_server.rest import create_app
from tokenwire_server.rest.openapi import build_document
from tokenwire_server.rest.transcoding.routes import routes_of

CHECKED_IN = Path(__file__).parents[2] / "docs" / "openapi.json"
PAGES = ("/docs", "/playground")
VERBS = {"get", "post", "put", "patch", "delete"}


def document() -> dict[str, Any]:
    return json.loads(json.dumps(build_document("1.2.3")))  # type: ignore[no-any-return]


def test_the_copy_in_docs_is_fresh() -> None:
    copy = json.loads(CHECKED_IN.read_text())
    copy["info"]["version"] = "1.2.3"
    assert copy == document(), "run: python -m tokenwire_server.rest.openapi > docs/openapi.json"


async def test_it_is_served_without_a_key(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.keys = frozenset({"k"})
    assert (await http.get("/openapi.json")).json() == document()


def test_every_route_is_in_it() -> None:
    paths = set(document()["paths"])
    app = create_app(FakeBackend(), version="1")
    ours = {re.sub(r":path\}", "}", route.path) for route in app.routes if isinstance(route, APIRoute)}
    native = {re.sub(r"\{(\w+)[^}]*\}", r"{\1}", route.path) for route in routes_of(contract_services().values())}
    assert paths == (ours - set(PAGES)) | native | {"/healthz"}


def test_operation_ids_are_grpc_gateways() -> None:
    paths = document()["paths"]
    ids = [operation["operationId"] for item in paths.values() for operation in item.values()]
    assert len(ids) == len(set(ids))
    assert paths["/tokenwire/v1/chat"]["post"]["operationId"] == "ChatService_Chat"
    second = paths["/tokenwire/v1/models/{model}:chat"]["post"]
    assert (second["operationId"], second["tags"]) == ("ChatService_Chat2", ["ChatService"])


def test_every_reference_leads_somewhere() -> None:
    found = document()
    text = json.dumps(found)
    for name in set(re.findall(r'"#/components/schemas/([^"]+)"', text)):
        assert name in found["components"]["schemas"]
    assert all(set(item) <= VERBS for item in found["paths"].values())


def test_schemas_are_json_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    for schema in document()["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_ranges_are_the_contracts() -> None:
    schemas = document()["components"]["schemas"]
    native = schemas["tokenwire.v1.SamplingParams"]["properties"]
    assert (native["temperature"]["minimum"], native["temperature"]["maximum"]) == (0, 2)
    assert native["seed"] == {"type": "string", "format": "int64"}
    chat = schemas["ChatCompletionRequest"]["properties"]
    assert chat["temperature"] == {"type": ["number", "null"], "minimum": 0, "maximum": 2}
    assert chat["seed"]["type"] == ["integer", "null"]
    assert schemas["tokenwire.v1.ChatRequest"]["required"] == ["messages"]


@pytest.mark.parametrize("path", PAGES)
async def test_pages_ask_nothing_of_other_hosts(http: httpx.AsyncClient, backend: FakeBackend, path: str) -> None:
    backend.keys = frozenset({"k"})  # a page asks for the key itself
    response = await http.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "connect-src 'self'" in response.headers["content-security-policy"]
    assert not re.search(r"https?://", response.text)
    assert not re.search(r"""(?:src|href)=["'](?!data:|openapi\.json|playground)""", response.text)
    assert "innerHTML" not in response.text  # a model's words are text, never markup
    assert not re.search(r"@import|\burl\(", response.text)


async def test_what_the_playground_has(http: httpx.AsyncClient) -> None:
    text = (await http.get("/playground")).text
    for word in ('id="stop"', "tokens/s", "first token", "grpcurl", "curl -N", "from openai", "AbortController"):
        assert word in text
    assert "/v1/models" in text
    assert "include_usage" in text


async def test_metrics(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    pytest.importorskip("prometheus_client")
    response = await http.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    assert "python_info" in response.text
    backend.keys = frozenset({"k"})
    assert (await http.get("/metrics")).status_code == 401
