"""The stream of the sync client."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import grpc

from tokenwire._retry import Attempts
from tokenwire._stream_base import StreamBase
from tokenwire._streams import Accumulator, DeltaT, ResponseT


class Stream(StreamBase[DeltaT, ResponseT]):
    """Deltas as they come, and the response that they add up to.

    An iterator of deltas and a context manager. The request is sent when the first delta is read. Leaving early
    cancels the request at the server: at the end of the `with` block, on `cancel` or `close`, on an exception while
    reading, and when the stream is dropped, as after `break` in a loop over it. Any thread may call `cancel`; reading
    is for one thread at a time.

    Example:
        with client.stream_chat("Why is the sky blue?") as stream:
            for delta in stream:
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
        self._stopped = threading.Event()
        super().__init__(accumulator, attempts, client_closed)
        self._open_call = open_call

    def __iter__(self) -> Iterator[DeltaT]:
        return self

    def __next__(self) -> DeltaT:
        """The next delta.

        Raises:
            ApiError: The call failed; `response` holds what came before.
            ClientClosedError: The client was closed.
        """
        try:
            while (event := self._next_event()) is not None:
                delta = self._accumulator.feed(event)
                if delta is not None:
                    return delta
        except BaseException:
            self.cancel()
            raise
        raise StopIteration

    def _next_event(self) -> Any:
        """The next event; None at the end and after a cancel."""
        while not self._stopped.is_set():
            if self._call is None:
                self._call = self._open_call(self._attempts.remaining())
            try:
                return next(self._call)
            except StopIteration:
                self._stopped.set()
                self._accumulator.check_complete()
            except grpc.RpcError as error:
                if self._stopped.is_set():
                    break
                delay = self._retry_delay(error)
                self._call = None
                self._stopped.wait(delay)
        return None

    def cancel(self) -> None:
        """Cancels the request at the server and ends the iteration. Does nothing once the stream has ended."""
        self._stopped.set()
        if self._call is not None:
            self._call.cancel()

    def close(self) -> None:
        """`cancel`, under the name that `contextlib.closing` calls."""
        self.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def __del__(self) -> None:
        self.cancel()
