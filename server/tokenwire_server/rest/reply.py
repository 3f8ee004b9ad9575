"""The way out of a door: a response's common headers, and whether one has begun."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Send

from tokenwire_server.backend import CallContext

__all__ = ["Reply"]


class Reply:
    """Adds the headers that every response has.

    Args:
        send: Of the server.
        call: The request.
        processing_header: Name of the header with the time to the headers, milliseconds; empty for none.
    """

    def __init__(self, send: Send, call: CallContext, processing_header: str = "") -> None:
        self._send = send
        self._received_at = call.received_at
        self._request_id = call.request_id  # as it came: a body's `request_id` may rename the call later
        self._processing_header = processing_header
        self.started = False

    async def send(self, message: Message) -> None:
        """Sends an ASGI message."""
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self._request_id
            headers["x-content-type-options"] = "nosniff"
            if self._processing_header:
                elapsed_ms = round((time.monotonic() - self._received_at) * 1000)
                headers[self._processing_header] = str(elapsed_ms)
        await self._send(message)

    async def respond(
        self, status: int, headers: Mapping[str, str], body: bytes, more: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        """Sends a whole response."""
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        raw += [(b"content-length", str(len(body)).encode()), *more]
        await self.send({"type": "http.response.start", "status": status, "headers": raw})
        await self.send({"type": "http.response.body", "body": body})

    async def nobody(self) -> None:
        """Ends a request whose client has gone; the reply is for servers that insist on one."""
        if not self.started:
            await self.respond(499, {}, b"")
