"""grpc-gateway in Python: a JSON route for every RPC of the contract, read from its descriptors.

What is different from grpc-gateway, and why, is in docs/gateway.md. An RPC that is added to the contract is served here
without a line of code.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, cast
from urllib.parse import parse_qs

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from tokenwire_server.backend import Backend, new_request_id, sane_request_id
from tokenwire_server.errors import StatusError
from tokenwire_server.rest.body import read_bytes
from tokenwire_server.rest.call import RestCall
from tokenwire_server.rest.gateway_replies import Framing, GatewayReplies
from tokenwire_server.rest.reply import Reply
from tokenwire_server.rest.streams import ClientGoneError, EventStream, unless_gone
from tokenwire_server.rest.transcoding.decode import decode_body
from tokenwire_server.rest.transcoding.headers import grpc_timeout_s, reply_headers, request_metadata
from tokenwire_server.rest.transcoding.query import apply_path, apply_query
from tokenwire_server.rest.transcoding.routes import Route, RouteTable, method_not_allowed

__all__ = ["Gateway", "Health"]

Health = Callable[[str], Awaitable[bool | None]]
"""Whether a service (or a model, or "" for all) serves; None where it is not known."""

_HEALTH_PATH = "/healthz"


class Gateway:
    """An ASGI application for the native routes and `/healthz`.

    Args:
        backend: Answers every call.
        services: The contract.
        health: What `/healthz` asks.
        max_body_bytes: Largest body, in bytes.
        keep_alive_s: Seconds without an event after which a stream of server-sent events sends a comment.
    """

    def __init__(
        self,
        backend: Backend,
        services: Iterable[ServiceDescriptor],
        health: Health,
        *,
        max_body_bytes: int,
        keep_alive_s: float,
    ) -> None:
        self.table = RouteTable(services)
        self._backend = backend
        self._health = health
        self._max_body_bytes = max_body_bytes
        self._keep_alive_s = keep_alive_s
        self._replies = GatewayReplies()

    def owns(self, path: str) -> bool:
        """Whether a path is answered here, with a route or with this door's 404."""
        return path == _HEALTH_PATH or self.table.owns(path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        headers = Headers(scope=scope)
        named = headers.get("x-request-id") or headers.get("grpc-metadata-x-request-id")
        call = RestCall(request_id=sane_request_id(named) or new_request_id())
        reply = Reply(send, call)
        try:
            await self._answer(Request(scope, receive), reply, call)
        except (ClientDisconnect, ClientGoneError):
            await reply.nobody()
        except Exception as error:  # the boundary: `fail` logs what is not ours
            if reply.started:
                raise  # part of a body is out: only cutting the connection still tells the client
            await self._replies.fail(reply, error, call.request_id)

    async def _answer(self, request: Request, reply: Reply, call: RestCall) -> None:
        path = _path(request.scope)
        if path == _HEALTH_PATH and request.method == "GET":
            await self._healthz(request, reply)
            return
        _read_headers(request, call)
        found = self._find(request.method, path)
        framing = _framing(found, request)
        try:
            self._backend.authorize(call)
        except StatusError as error:
            await self._replies.fail(reply, error, call.request_id, framing)
            return
        if isinstance(found, StatusError):
            raise found
        route, values = found
        _read_deadline(request, call)
        message = await self._read(route, values, request, call)
        if framing is None:
            await self._unary(route, message, request, reply, call)
        else:
            await self._stream(route, message, request, reply, call, framing)

    def _find(self, method: str, path: str) -> tuple[Route, dict[str, str]] | StatusError:
        if path == _HEALTH_PATH:
            return method_not_allowed()
        try:
            return self.table.find(method, path)
        except StatusError as error:
            return error

    async def _read(self, route: Route, values: dict[str, str], request: Request, call: RestCall) -> Message:
        message = route.new_request()
        if route.body:
            data = await read_bytes(request, self._max_body_bytes)
            call.request_size = len(data)
            decode_body(route, data, message)
        apply_path(message, values)
        if route.body != "*":
            apply_query(route, message, request.scope.get("query_string", b""))
        _set_timeout(message, call)
        return message

    async def _unary(self, route: Route, message: Message, request: Request, reply: Reply, call: RestCall) -> None:
        work = self._backend.unary(route.name, message, call)
        answer = await unless_gone(request.receive, work)
        kind, body = self._replies.body(answer, route)
        await reply.respond(200, {"content-type": kind}, body, reply_headers(call.reply_metadata))

    async def _stream(
        self, route: Route, message: Message, request: Request, reply: Reply, call: RestCall, framing: Framing
    ) -> None:
        events = cast("AsyncGenerator[Any, None]", self._backend.stream(route.name, message, call))
        frames = self._replies.frames(route, framing)
        style = self._replies.style(call, framing)
        stream = EventStream(events, frames, style, request_id=call.request_id, keep_alive_s=self._keep_alive_s)
        try:
            await stream(request.scope, request.receive, reply.send)
        except ClientGoneError:
            raise
        except Exception as error:
            if reply.started:
                raise
            await self._replies.fail(reply, error, call.request_id, framing)

    async def _healthz(self, request: Request, reply: Reply) -> None:
        service = request.query_params.get("service", "")
        await self._replies.health(reply, await self._health(service))


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _framing(found: tuple[Route, dict[str, str]] | StatusError, request: Request) -> Framing | None:
    """How a stream is framed; None where the reply is not one."""
    if isinstance(found, StatusError) or not found[0].streaming:
        return None
    accepted = request.headers.get("accept", "")
    query = parse_qs(request.scope.get("query_string", b"").decode("latin-1"))
    sse = "text/event-stream" in accepted.lower() or query.get("alt") == ["sse"]
    return Framing.SSE if sse else Framing.LINES


def _read_headers(request: Request, call: RestCall) -> None:
    """Fills in what the service reads of metadata: the first of each key, as the gRPC door does."""
    client = request.client.host if request.client else ""
    call.metadata = request_metadata(request.headers.items(), client)
    first: dict[str, str] = {}
    for key, value in call.metadata:
        if isinstance(value, str):
            first.setdefault(key, value)
    scheme, _, token = first.get("authorization", "").partition(" ")
    call.api_key = token.strip() if scheme.lower() == "bearer" else ""
    call.traceparent = first.get("traceparent", "")[:128]


def _read_deadline(request: Request, call: RestCall) -> None:
    value = request.headers.get("grpc-timeout")
    seconds = grpc_timeout_s(value) if value is not None else None
    if seconds is not None:
        call.deadline = call.received_at + seconds


def _set_timeout(message: Any, call: RestCall) -> None:
    # A proxy passes no deadline on, so the time allowed goes in the message too; the smaller of two holds.
    field = message.DESCRIPTOR.fields_by_name.get("timeout")
    if call.deadline is None or field is None or field.message_type is None:
        return
    allowed = timedelta(seconds=max(call.deadline - call.received_at, 0.001))
    if field.message_type.full_name != "google.protobuf.Duration":
        return
    if not message.HasField("timeout") or message.timeout.ToTimedelta() > allowed:
        message.timeout.FromTimedelta(allowed)
