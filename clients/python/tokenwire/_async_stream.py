"""The stream of the async client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self

import grpc

from tokenwire._retry import Attempts
from tokenwire._stream_base import StreamBase
from tokenwire._streams import Accumulator, DeltaT, ResponseT
from tokenwire.errors import ClientClosedError


def cancelled_from_outside() -> bool:
    """Whether somebody cancels the running task, as opposed to the call that it waits for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class AsyncStream(StreamBase[DeltaT, ResponseT]):
    """Deltas as they come, and the response that they add up to.

    An async iterator of deltas and an async context manager. The request is sent when the first delta is read.
    Leaving early cancels the request at the server: at the end of the `async with` block, on `cancel` or `aclose`, on
    an exception or a cancelled task while reading, and when the stream is dropped, as after `break` in a loop over it.

    Example:
        async with client.stream_chat("Why is the sky blue?") as stream:
            async for delta in stream:
                print(delta.content, end="", flush=True)
        print(stream.response.usage.output_token_count)
    """

    def __init__(
        self,
        open_call: Callable[[float], Any],
        accumulator: Accumulator[DeltaT, ResponseT],
        attempts: Attempts,
        client_closed: Callable[[], bool],
    ) -> None:
        # First, so that `__del__` finds them whatever happens.
        self._call: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        super().__init__(accumulator, attempts, client_closed)
        self._open_call = open_call

    def __aiter__(self) -> AsyncIterator[DeltaT]:
        return self

    async def __anext__(self) -> DeltaT:
        """The next delta.

        Raises:
            ApiError: The call failed; `response` holds what came before.
            ClientClosedError: The client was closed.
        """
        try:
            while (event := await self._next_event()) is not None:
                delta = self._accumulator.feed(event)
                if delta is not None:
                    return delta
        except BaseException:
            self.cancel()
            raise
        raise StopAsyncIteration

    async def _next_event(self) -> Any:
        """The next event; None at the end and after a cancel."""
        while not self._stopped:
            if self._call is None:
                self._loop = asyncio.get_running_loop()
                self._call = self._open_call(self._attempts.remaining())
            try:
                event = await self._call.read()
            except grpc.RpcError as error:
                if self._stopped:
                    break
                delay = self._retry_delay(error)
                self._call = None
                await asyncio.sleep(delay)
            except asyncio.CancelledError:
                # grpc.aio raises it too when the call is cancelled here, which is no cancel of this task.
                if cancelled_from_outside() or not (self._stopped or self._client_closed()):
                    raise
                if not self._stopped:
                    raise ClientClosedError("the client was closed while the stream was open") from None
            else:
                if event is not grpc.aio.EOF:
                    return event
                self._stopped = True
                self._accumulator.check_complete()
        return None

    def cancel(self) -> None:
        """Cancels the request at the server and ends the iteration. Does nothing once the stream has ended."""
        self._stopped = True
        if self._call is not None:
            self._call.cancel()

    async def aclose(self) -> None:
        """`cancel`, under the name that `contextlib.aclosing` calls."""
        self.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def __del__(self) -> None:
        # The collector may run in any thread, or after the loop.
        if self._call is not None and self._loop is not None and not self._call.done():
            with contextlib.suppress(RuntimeError):  # the loop is closed, and its connections with it
                self._loop.call_soon_threadsafe(self._call.cancel)
