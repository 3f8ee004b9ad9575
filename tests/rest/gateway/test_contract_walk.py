"""Every route of the real contract over the echo engine, beside the gRPC answer to the same request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2
from grpc_status.rpc_status import aio as rpc_status
from tests.conftest import EchoServer

from tokenwire_server.backend import contract_services
from tokenwire_server.rest import create_app
from tokenwire_server.rest.gateway_replies import HTTP_STATUS
from tokenwire_server.rest.transcoding.routes import Route, RouteTable

assert error_details_pb2  # details are read from the pool by name

CHAT: dict[str, Any] = {"messages": [{"role": "ROLE_USER", "content": [{"text": "a b c d"}]}], "requestId": "walk"}
GENERATE: dict[str, Any] = {"text": "a b c", "output": {"returnTokenIds": True}, "requestId": "walk"}
REQUESTS: dict[str, dict[str, Any]] = {
    "Chat": CHAT,
    "StreamChat": CHAT,
    "Generate": GENERATE,
    "StreamGenerate": GENERATE,
    "Embed": {"inputs": [{"text": "a"}]},
    "Tokenize": {"text": "a b", "returnTokens": True},
    "Detokenize": {"tokenIds": [1, 2]},
    "RenderChat": {"messages": CHAT["messages"]},
    "GetModel": {"model": "echo"},
    "LoadAdapter": {"adapter": "x"},
    "UnloadAdapter": {"adapter": "x"},
    "CancelRequests": {"requestIds": ["nobody"]},
}
"""What is asked; the other RPCs are asked with an empty message. A new RPC with required fields answers with an error,
which is compared just as well."""

CHANGING = {"createTime", "timing", "uptime"}
ROUTES = RouteTable(contract_services().values()).routes


@pytest.fixture(scope="module")
async def web(echo_server: EchoServer) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(echo_server.service, version="test")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://gw.example") as client:
        yield client


def url_of(route: Route) -> str:
    path = route.path
    for name, _, _ in route.template.variables:
        path = path.replace(f"{{{name}=**}}", "echo").replace(f"{{{name}}}", "echo")
    assert "{" not in path
    return path


def steady(value: Any) -> Any:
    """A reply without what differs from call to call."""
    if isinstance(value, dict):
        return {key: steady(one) for key, one in value.items() if key not in CHANGING}
    return [steady(one) for one in value] if isinstance(value, list) else value


def as_json(message: Any) -> Any:
    return steady(json_format.MessageToDict(message, always_print_fields_with_no_presence=True))


def through_proto(value: Any, kind: Any) -> Any:
    """A gateway reply as protobuf's own writer has it: the nulls are read as unset."""
    return as_json(json_format.ParseDict(value, kind()))


async def by_grpc(channel: grpc.aio.Channel, route: Route) -> tuple[list[Any], Any]:
    """The replies and the status (None where it is OK)."""
    request = json_format.ParseDict(REQUESTS.get(route.rpc.name, {}), route.new_request())
    reply = GetMessageClass(route.rpc.output_type)
    make: Any = channel.unary_stream if route.streaming else channel.unary_unary
    call: Callable[..., Any] = make(
        f"/{route.name}", request_serializer=type(request).SerializeToString, response_deserializer=reply.FromString
    )
    running = call(request)
    try:
        answers = [one async for one in running] if route.streaming else [await running]
    except grpc.aio.AioRpcError:
        return [], await rpc_status.from_call(running)
    return [as_json(one) for one in answers], None


@pytest.mark.parametrize("route", ROUTES, ids=[f"{route.rpc.name} {route.path}" for route in ROUTES])
async def test_each_route_answers_as_grpc_does(web: httpx.AsyncClient, echo_server: EchoServer, route: Route) -> None:
    answers, status = await by_grpc(echo_server.channel, route)
    body = REQUESTS.get(route.rpc.name, {}) if route.body else None
    response = await web.request(route.http_method, url_of(route), json=body)
    if status is not None:
        assert response.status_code == HTTP_STATUS[status.code]
        assert json_format.ParseDict(response.json(), status_pb2.Status()) == status
        return
    assert response.status_code == 200, response.text
    found = [json.loads(line) for line in response.text.splitlines()] if route.streaming else [response.json()]
    if route.streaming:
        assert all(set(one) == {"result"} for one in found)
        found = [one["result"] for one in found]
    kind = GetMessageClass(route.rpc.output_type)
    assert [through_proto(one, kind) for one in found] == answers


def test_every_rpc_has_a_route() -> None:
    rpcs = {f"{name}/{rpc.name}" for name, service in contract_services().items() for rpc in service.methods}
    assert {route.name for route in ROUTES} == rpcs


async def test_model_ids_with_slashes_and_colons(web: httpx.AsyncClient) -> None:
    for path in ("/tokenwire/v1/models/org/a:b", "/tokenwire/v1/models/org%2Fa:b", "/tokenwire/v1/models/org/a:b:chat"):
        response = await (web.post(path, json=CHAT) if path.endswith(":chat") else web.get(path))
        assert response.status_code == 404
        assert "`org/a:b`" in response.json()["message"]


async def test_list_and_not_get_of_nothing(web: httpx.AsyncClient) -> None:
    listed = (await web.get("/tokenwire/v1/models?page_size=5&pageToken=")).json()
    assert [one["id"] for one in listed["models"]] == ["echo"]
    assert (await web.get("/tokenwire/v1/models/")).json()["details"][0]["reason"] == "INVALID_FIELD"


async def test_both_doors_at_once(web: httpx.AsyncClient) -> None:
    assert (await web.get("/v1/models")).json()["data"][0]["id"] == "echo"
    assert (await web.get("/nothing")).json()["error"]["code"] == "unknown_url"
    assert (await web.get("/tokenwire/nothing")).json()["code"] == 5
    assert (await web.get("/healthz?service=tokenwire.v1.ChatService")).json() == {"status": "SERVING"}
    assert (await web.get("/healthz?service=nope")).status_code == 404


async def test_below_a_prefix(echo_server: EchoServer) -> None:
    app = create_app(echo_server.service, version="test")
    transport = httpx.ASGITransport(app=app, root_path="/llm")
    async with httpx.AsyncClient(transport=transport, base_url="http://gw.example/llm") as client:
        assert (await client.get("/tokenwire/v1/models/echo")).json()["model"]["id"] == "echo"
        assert (await client.get("/v1/models/echo")).json()["id"] == "echo"
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/health")).status_code == 200


@pytest.mark.parametrize("path", ["/tokenwire/v1/chat", "/tokenwire/v1/streamChat", "/tokenwire/v1/streamChat?alt=sse"])
async def test_a_client_that_goes_cancels_the_call(echo_server: EchoServer, path: str) -> None:
    app = create_app(echo_server.service, version="test")
    request = {"messages": [{"role": "ROLE_USER", "content": [{"text": "[[fault:hang:1]] a b c"}]}]}
    body = json.dumps(request).encode()
    gone = asyncio.Event()
    incoming = [{"type": "http.request", "body": body}]

    async def receive() -> Any:
        if incoming:
            return incoming.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(_message: Any) -> None:
        pass

    path, _, query = path.partition("?")
    scope = {"type": "http", "method": "POST", "path": path, "query_string": query.encode(), "headers": []}
    serving = asyncio.ensure_future(app(scope, receive, send))
    while not echo_server.engine.load().running_count:
        await asyncio.sleep(0)
    gone.set()
    await serving
    assert echo_server.engine.load().running_count == 0


@pytest.mark.parametrize(("text", "status", "reason"), [("50m", 504, "DEADLINE_EXCEEDED"), ("-1S", 504, None)])
async def test_the_deadline_header_ends_a_call(
    web: httpx.AsyncClient, text: str, status: int, reason: str | None
) -> None:
    body = {"messages": [{"role": "ROLE_USER", "content": [{"text": "[[fault:hang:0]] a b c"}]}]}
    for path in ("/tokenwire/v1/chat", "/tokenwire/v1/streamChat"):
        response = await web.post(path, json=body, headers={"grpc-timeout": text})
        assert response.status_code == status, response.text
        found = response.json()
        found = found.get("error", found)
        assert found["code"] == 4
        assert reason is None or found["details"][0]["reason"] == reason
