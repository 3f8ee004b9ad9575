"""Replies of the gateway: JSON, newline-delimited or server-sent streams, and errors as `google.rpc.Status`."""

from __future__ import annotations

import enum
import logging
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from google.api import httpbody_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2, status_pb2

from tokenwire_server.errors import StatusError
from tokenwire_server.rest.call import RestCall
from tokenwire_server.rest.openai.encoding import dumps
from tokenwire_server.rest.reply import Reply
from tokenwire_server.rest.streams import SSE_HEADERS, StreamStyle
from tokenwire_server.rest.transcoding.encode import JsonWriter
from tokenwire_server.rest.transcoding.headers import reply_headers
from tokenwire_server.rest.transcoding.routes import Route

__all__ = ["HTTP_STATUS", "Framing", "GatewayReplies"]

_log = logging.getLogger(__name__)

_JSON = "application/json"

HTTP_STATUS: Mapping[int, int] = MappingProxyType(
    {
        code_pb2.OK: 200,
        code_pb2.CANCELLED: 499,
        code_pb2.UNKNOWN: 500,
        code_pb2.INVALID_ARGUMENT: 400,
        code_pb2.DEADLINE_EXCEEDED: 504,
        code_pb2.NOT_FOUND: 404,
        code_pb2.ALREADY_EXISTS: 409,
        code_pb2.PERMISSION_DENIED: 403,
        code_pb2.UNAUTHENTICATED: 401,
        code_pb2.RESOURCE_EXHAUSTED: 429,
        code_pb2.FAILED_PRECONDITION: 400,
        code_pb2.ABORTED: 409,
        code_pb2.OUT_OF_RANGE: 400,
        code_pb2.UNIMPLEMENTED: 501,
        code_pb2.INTERNAL: 500,
        code_pb2.UNAVAILABLE: 503,
        code_pb2.DATA_LOSS: 500,
    }
)
"""grpc-gateway's HTTP status of each gRPC code."""


class Framing(enum.Enum):
    """How the messages of a stream are told apart."""

    LINES = "lines"
    """An object a line, as grpc-gateway has it."""
    SSE = "sse"
    """Server-sent events: our extension."""


class GatewayReplies:
    """Writes replies. Holds the compiled field lists of the contract's messages."""

    def __init__(self) -> None:
        self._writer = JsonWriter()

    def body(self, message: Message, route: Route) -> tuple[str, bytes]:
        """Content type and body of a unary reply."""
        if isinstance(message, httpbody_pb2.HttpBody):
            return message.content_type or "application/octet-stream", message.data
        return _JSON, dumps(self._value(message, route))

    def _value(self, message: Message, route: Route) -> Any:
        value = self._writer.value(message)
        if not route.response_body:
            return value
        return value.get(message.DESCRIPTOR.fields_by_name[route.response_body].json_name)

    def frames(self, route: Route, framing: Framing) -> _ResultFrames:
        """Writer of a stream's frames."""
        return _ResultFrames(lambda message: self._value(message, route), framing)

    def style(self, call: RestCall, framing: Framing) -> StreamStyle:
        """What is around a stream's frames: there is no end marker."""
        sse = framing is Framing.SSE
        headers = SSE_HEADERS if sse else ((b"content-type", _JSON.encode()), (b"x-accel-buffering", b"no"))

        def error_frame(error: Exception) -> bytes:
            return self._framed_error(_status(error, call.request_id).status, framing)

        keep_alive = b": keep-alive\n\n" if sse else b""
        return StreamStyle(
            error_frame, keep_alive=keep_alive, headers=lambda: (*headers, *reply_headers(call.reply_metadata))
        )

    def _framed_error(self, status: status_pb2.Status, framing: Framing) -> bytes:
        return _frame(b'{"error":' + dumps(self._writer.value(status)) + b"}", framing)

    async def fail(self, reply: Reply, error: Exception, request_id: str, framing: Framing | None = None) -> None:
        """Answers with an error. What is not ours is logged, and hidden behind the request id.

        Args:
            reply: The way out; nothing has been sent.
            error: What was raised.
            request_id: Of the request.
            framing: Of the stream that the reply would have been; None for a unary one.
        """
        shown = _status(error, request_id)
        status = shown.status
        body = self._framed_error(status, framing) if framing else dumps(self._writer.value(status))
        kind = "text/event-stream; charset=utf-8" if framing is Framing.SSE else _JSON
        headers = {"content-type": kind, **_error_headers(shown)}
        await reply.respond(HTTP_STATUS.get(shown.status.code, 500), headers, body)

    async def health(self, reply: Reply, serving: bool | None) -> None:
        """Answers `/healthz`; None is a service that is not known."""
        if serving:
            await reply.respond(200, {"content-type": _JSON}, b'{"status":"SERVING"}')
            return
        code = code_pb2.NOT_FOUND if serving is None else code_pb2.UNAVAILABLE
        name = "SERVICE_UNKNOWN" if serving is None else "NOT_SERVING"
        await self.fail(reply, StatusError(status_pb2.Status(code=code, message=f"status:{name}")), "")


class _ResultFrames:
    """A frame a message."""

    complete = True

    def __init__(self, value: Callable[[Message], Any], framing: Framing) -> None:
        self._value = value
        self._framing = framing

    def feed(self, event: Message) -> bytes:
        """The frame of a message."""
        return _frame(b'{"result":' + dumps(self._value(event)) + b"}", self._framing)


def _frame(data: bytes, framing: Framing) -> bytes:
    return b"data: " + data + b"\n\n" if framing is Framing.SSE else data + b"\n"


def _status(error: Exception, request_id: str) -> StatusError:
    if isinstance(error, StatusError):
        return error
    _log.error("unexpected error", exc_info=error, extra={"request_id": request_id})
    return StatusError.internal(request_id)


def _error_headers(error: StatusError) -> dict[str, str]:
    headers: dict[str, str] = {}
    if error.status.code == code_pb2.UNAUTHENTICATED:
        headers["www-authenticate"] = re.sub(r"[^\x20-\x7e]", "?", error.status.message)
    delay = error.retry_delay_s
    if delay is not None:
        headers["retry-after"] = str(max(1, math.ceil(delay)))  # our extension, as on the OpenAI surface
    return headers
