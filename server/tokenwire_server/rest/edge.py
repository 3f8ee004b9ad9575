"""First and last on every request: request id, key, deadline, and the one place where an exception becomes a reply."""

from __future__ import annotations

import math

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from tokenwire_server.backend import Backend, CallContext, new_request_id, sane_request_id
from tokenwire_server.rest.anthropic.errors import anthropic_error, is_anthropic
from tokenwire_server.rest.call import RestCall
from tokenwire_server.rest.openai.errors import OpenAIError, describe
from tokenwire_server.rest.reply import Reply
from tokenwire_server.rest.streams import ClientGoneError

__all__ = ["TIMEOUT_HEADER", "Edge"]

TIMEOUT_HEADER = "x-request-timeout-seconds"

_MAX_TIMEOUT_S = 31_536_000.0
_OPEN_PATHS = frozenset({"/health", "/livez", "/readyz", "/version", "/openapi.json", "/docs", "/playground"})
"""Answered without a key. Everything else needs one, unknown URLs too: nothing new is open by oversight."""


class Edge:
    """ASGI middleware around the whole application.

    Puts the `CallContext` at `scope["state"]["call"]`. A route that has read its body leaves its `ParamNames` at
    `scope["state"]["names"]`, by which errors name the parameter.

    Args:
        app: What answers.
        backend: Whose `authorize` is asked before anything is read.
    """

    def __init__(self, app: ASGIApp, backend: Backend) -> None:
        self._app = app
        self._backend = backend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        anthropic = is_anthropic(path)  # whose clients send the key in a header of their own, and read other errors
        call = RestCall(
            request_id=sane_request_id(headers.get("x-request-id")) or new_request_id(),
            api_key=_bearer(headers.get("authorization", "")) or (headers.get("x-api-key", "") if anthropic else ""),
            traceparent=headers.get("traceparent", "")[:128],
        )
        state = scope.setdefault("state", {})
        state["call"] = call
        reply = Reply(send, call, "openai-processing-ms")
        try:
            if scope["method"] != "OPTIONS" and path not in _OPEN_PATHS:
                self._backend.authorize(call)
            call.deadline = _deadline(headers, call)
            await self._app(scope, receive, reply.send)
        except (ClientDisconnect, ClientGoneError):
            await reply.nobody()
        except Exception as error:  # the boundary: `describe` logs what is not ours
            if reply.started:
                raise  # part of a body is out: only cutting the connection still tells the client
            shown = describe(error, state.get("names"), call.request_id)
            body = anthropic_error(shown, call.request_id) if anthropic else shown.body()
            await reply.respond(shown.status, {"content-type": "application/json", **shown.headers}, body)


def _bearer(value: str) -> str:
    scheme, _, key = value.partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def _deadline(headers: Headers, call: CallContext) -> float | None:
    text = headers.get(TIMEOUT_HEADER)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (seconds > 0 and math.isfinite(seconds)):
        message = f"Invalid header '{TIMEOUT_HEADER}': expected a number of seconds above 0."
        raise OpenAIError(400, message, code="invalid_value")
    return call.received_at + min(seconds, _MAX_TIMEOUT_S)
