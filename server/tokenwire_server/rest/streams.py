"""Server-sent events over raw ASGI, and the client's hanging up as a cancel, streaming or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tokenwire_server.errors import StatusError

__all__ = ["SSE_HEADERS", "ClientGoneError", "EventStream", "Frames", "StreamStyle", "unless_gone"]

_T = TypeVar("_T")
_Event_contra = TypeVar("_Event_contra", contravariant=True)
_Event = TypeVar("_Event")

SSE_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class ClientGoneError(Exception):
    """The client has closed the connection before the reply was complete."""


@dataclass(frozen=True, slots=True)
class StreamStyle:
    """What is around the frames of a stream."""

    on_error: Callable[[Exception], bytes]
    """The last frame where an error comes after the headers."""
    last: bytes = b""
    """The last frame where all went well."""
    keep_alive: bytes = b": keep-alive\n\n"
    """Sent when the line has been idle; empty for a framing that has no comments."""
    headers: Callable[[], Iterable[tuple[bytes, bytes]]] = lambda: SSE_HEADERS
    """Asked when the first event is there."""


class Frames(Protocol[_Event_contra]):
    """Writes the frames of a stream's events."""

    def feed(self, event: _Event_contra, /) -> bytes:
        """The frames of an event; empty where it has nothing for the client."""

    @property
    def complete(self) -> bool:
        """Whether the stream's end has come."""


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, _T]) -> _T:
    """Awaits `work`, and cancels it when the client goes first. The body must have been read.

    Raises:
        ClientGoneError: The client went.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError
    finally:
        await _stop(task, gone)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _stop(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class EventStream(Response, Generic[_Event]):
    """A reply of server-sent events, or of another framing.

    Headers wait for the first event, so that a refused request still gets its own status; only when none has come
    for `keep_alive_s` do they go ahead, with a comment, lest a proxy take the connection for dead. An error after the
    headers is a frame of its own, without the last one after it.

    Args:
        events: An async generator of the backend; closed here, whatever happens.
        frames: Turns them into bytes.
        style: What is around them.
        request_id: Of the request, for a stream that stops without its end.
        keep_alive_s: Seconds without an event before a comment is sent.
    """

    def __init__(
        self,
        events: AsyncGenerator[_Event, None],
        frames: Frames[_Event],
        style: StreamStyle,
        *,
        request_id: str,
        keep_alive_s: float,
    ) -> None:
        super().__init__()
        self._events = events
        self._frames = frames
        self._style = style
        self._request_id = request_id
        self._interval = keep_alive_s if style.keep_alive else 1e9
        self._started = False
        self._writing = asyncio.Lock()
        self._clock = asyncio.get_running_loop().time
        self._last = self._clock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the stream.

        Raises:
            ClientGoneError: The client went.
            StatusError: The request was refused before the headers.
        """
        # One task runs the backend's generator from first to last: what it opens across a yield (a timeout, a span)
        # is bound to its task.
        pump = asyncio.ensure_future(self._pump(send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            while not pump.done() and not gone.done():
                wait_s = max(0.0, self._last + self._interval - self._clock())
                done, _ = await asyncio.wait((pump, gone), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                if not done and self._clock() >= self._last + self._interval:
                    await self._keep_alive(send)
            if not pump.done():
                raise ClientGoneError
            pump.result()
        finally:
            await _stop(pump, gone)

    async def _pump(self, send: Send) -> None:
        feed = self._frames.feed
        try:
            async with aclosing(self._events) as events:
                async for event in events:
                    data = feed(event)
                    if data:
                        await self._write(send, data)
            if not self._frames.complete:
                raise StatusError.internal(self._request_id)
            last = self._style.last
        except Exception as error:
            if not self._started:
                raise
            last = self._style.on_error(error)
        await self._write(send, last, more=False)

    async def _write(self, send: Send, data: bytes, *, more: bool = True) -> None:
        async with self._writing:
            if not self._started:
                self._started = True
                await send({"type": "http.response.start", "status": 200, "headers": list(self._style.headers())})
            await send({"type": "http.response.body", "body": data, "more_body": more})
        self._last = self._clock()

    async def _keep_alive(self, send: Send) -> None:
        if self._writing.locked():  # the reader lags, so the line is not idle
            self._last = self._clock()
        else:
            await self._write(send, self._style.keep_alive)
