"""What load balancers and orchestrators ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from tokenwire_server.errors import StatusError
from tokenwire_server.rest.openai.encoding import dumps

__all__ = ["Probes"]

_RETRY_S = 1.0


class Probes:
    """Handlers of the probes and of `/version`.

    Args:
        version: What `/version` says.
        ready: Whether a request would be served now; None is always.
    """

    def __init__(self, version: str, ready: Callable[[], Awaitable[bool]] | None) -> None:
        self._version = version
        self._ready = ready

    async def live(self, _: Request) -> Response:
        """200 as long as the process answers."""
        return _json({"status": "ok"})

    async def ready(self, _: Request) -> Response:
        """200 once a request would be served; 503 with Retry-After before that and while draining."""
        if self._ready is not None and not await self._ready():
            raise StatusError.retry_later("ENGINE_NOT_READY", "The server is not ready.", _RETRY_S)
        return _json({"status": "ok"})

    async def version(self, _: Request) -> Response:
        """The server's version."""
        return _json({"version": self._version})


def _json(value: object) -> Response:
    return Response(dumps(value), media_type="application/json")
