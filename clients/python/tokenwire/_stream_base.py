"""What the sync and the async stream show of the response so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

import grpc

from tokenwire._retry import Attempts
from tokenwire._status import from_rpc_error
from tokenwire._streams import Accumulator, DeltaT, ResponseT
from tokenwire.errors import ApiError, ClientClosedError
from tokenwire.v1 import output_pb2


class StreamBase(Generic[DeltaT, ResponseT]):
    """The part of a stream that awaits nothing."""

    def __init__(
        self, accumulator: Accumulator[DeltaT, ResponseT], attempts: Attempts, client_closed: Callable[[], bool]
    ) -> None:
        self._accumulator = accumulator
        self._attempts = attempts
        self._client_closed = client_closed

    @property
    def start(self) -> output_pb2.StreamStart | None:
        """The first event (request id, model, prompt tokens); None before the first delta was read."""
        return self._accumulator.start

    @property
    def response(self) -> ResponseT:
        """The response so far, as a new message each time; the whole response once the stream has ended.

        It equals what the unary call returns, and stays readable after an error or a cancel.
        """
        return self._accumulator.response()

    @property
    def text(self) -> str:
        """Text of output 0 so far."""
        return self._accumulator.text(0)

    def _retry_delay(self, error: grpc.RpcError) -> float:
        """Seconds until the next attempt; raises what the user is to see where there is none."""
        if self._client_closed():
            raise ClientClosedError("the client was closed while the stream was open") from None
        failure: ApiError = from_rpc_error(error)
        # Once anything has come, another attempt could repeat or contradict it.
        delay = None if self._accumulator.begun else self._attempts.delay_after(failure)
        if delay is None:
            raise failure from None
        return delay
