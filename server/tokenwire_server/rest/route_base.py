"""What the routes of all surfaces share: reading a body, asking the backend, streaming its events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from typing import Any, TypeVar, cast

from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import Response

from tokenwire.v1 import chat_pb2, embedding_pb2, generation_pb2
from tokenwire_server.backend import Backend, CallContext
from tokenwire_server.rest.body import parse_json, read_body
from tokenwire_server.rest.openai.encoding import dumps
from tokenwire_server.rest.openai.params import ParamNames
from tokenwire_server.rest.streams import EventStream, Frames, StreamStyle, unless_gone

__all__ = ["CHAT", "MODEL", "TOKENIZATION", "RouteBase", "json_response", "set_timeout"]

CHAT = "tokenwire.v1.ChatService"
MODEL = "tokenwire.v1.ModelService"
TOKENIZATION = "tokenwire.v1.TokenizationService"

_Inference = chat_pb2.ChatRequest | generation_pb2.GenerateRequest | embedding_pb2.EmbedRequest
_Call = TypeVar("_Call")


class RouteBase:
    """Base of a surface's handlers.

    Args:
        backend: Answers every call.
        max_body_bytes: Largest body, in bytes.
        keep_alive_s: Seconds without an event after which a stream sends a comment.
    """

    def __init__(self, backend: Backend, *, max_body_bytes: int, keep_alive_s: float) -> None:
        self._backend = backend
        self._max_body_bytes = max_body_bytes
        self._keep_alive_s = keep_alive_s

    async def _read(
        self,
        request: Request,
        translate: Callable[[dict[str, Any]], _Call],
        names: Callable[[dict[str, Any]], ParamNames],
    ) -> tuple[_Call, CallContext, ParamNames]:
        call: CallContext = request.state.call
        data = await read_body(request, self._max_body_bytes)
        call.request_size = len(data)
        body = parse_json(data)
        request.state.names = names(body)
        return translate(body), call, request.state.names

    async def _unary(self, request: Request, method: str, message: Message, call: CallContext) -> Any:
        """The backend's answer; a client that goes first cancels the call. The body must have been read."""
        return await unless_gone(request.receive, self._backend.unary(method, message, call))

    def _stream(self, method: str, message: Message, call: CallContext) -> AsyncGenerator[Any, None]:
        return cast("AsyncGenerator[Any, None]", self._backend.stream(method, message, call))

    def _event_stream(
        self, events: AsyncGenerator[Any, None], frames: Frames[Any], style: StreamStyle, call: CallContext
    ) -> Response:
        return EventStream(events, frames, style, request_id=call.request_id, keep_alive_s=self._keep_alive_s)


def set_timeout(request: _Inference, call: CallContext) -> None:
    """Puts the time allowed in the message: a proxy passes neither deadline nor header on."""
    if call.deadline is not None:
        seconds = max(call.deadline - call.received_at, 0.001)
        request.timeout.FromTimedelta(timedelta(seconds=seconds))


def json_response(value: Any) -> Response:
    """A body of JSON."""
    return Response(dumps(value), media_type="application/json")
