"""CORS for a list of origins. Off without one; credentials are never allowed, nor is `*`."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenwire_server.backend import new_request_id

__all__ = ["Cors"]

_EXPOSED = "x-request-id, retry-after"
_MAX_AGE_S = 600


class Cors:
    """ASGI middleware around everything: a preflight needs no key.

    Args:
        app: What answers.
        origins: Origins that may call, such as `https://app.example`; exact.
    """

    def __init__(self, app: ASGIApp, origins: Iterable[str]) -> None:
        self._app = app
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a preflight, and names the origin on every other answer to one that is allowed."""
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        origin = headers.get("origin", "")
        if origin not in self._origins:
            await self._app(scope, receive, send)
            return
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await _preflight(origin, headers, send)
            return

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                answer["access-control-allow-origin"] = origin
                answer["access-control-expose-headers"] = _EXPOSED
                answer.add_vary_header("Origin")
            await send(message)

        await self._app(scope, receive, named)


async def _preflight(origin: str, headers: Headers, send: Send) -> None:
    answer = {
        "access-control-allow-origin": origin,
        "access-control-allow-methods": "GET, HEAD, POST, PUT, PATCH, DELETE",
        "access-control-allow-headers": headers.get("access-control-request-headers", ""),
        "access-control-max-age": str(_MAX_AGE_S),
        "vary": "Origin, Access-Control-Request-Headers",
        "x-request-id": new_request_id(),
    }
    raw = [(name.encode(), value.encode("latin-1")) for name, value in answer.items() if value]
    await send({"type": "http.response.start", "status": 204, "headers": raw})
    await send({"type": "http.response.body", "body": b""})
