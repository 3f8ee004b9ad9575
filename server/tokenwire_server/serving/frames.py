"""What goes over a deployment handle: request bytes in, frames out, and nothing raised.

Serve's transports between deployments lose the type and details of what is raised, so a status travels as a frame. A
frame is one kind byte and a payload: `m` a serialized message, `s` a serialized google.rpc.Status.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, cast

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2
from ray.exceptions import RayError

from tokenwire.admin.v1 import admin_pb2
from tokenwire_server.backend import Backend, CallContext, contract_services
from tokenwire_server.errors import StatusError

__all__ = ["ADMIN", "Frames", "context_of", "everywhere", "message_of", "methods"]

ADMIN = "tokenwire.admin.v1.AdminService/"
"""How admin RPCs' names begin."""

_MESSAGE, _STATUS = b"m", b"s"

_ADMIN_TIMEOUT_S = 10.0
"""How long each replica has for an admin RPC."""

_log = logging.getLogger(__name__)


def methods() -> dict[str, MethodDescriptor]:
    """Every method of the contract by its full name."""
    return {
        f"{name}/{method.name}": method for name, service in contract_services().items() for method in service.methods
    }


def context_of(call: CallContext) -> tuple[Any, ...]:
    """A call's facts as plain values. The deadline travels as what is left of it: clocks of nodes differ."""
    return (call.request_id, call.identity, call.remaining(), call.traceparent, call.request_size)


def message_of(frame: bytes) -> bytes:
    """The message's bytes in a frame.

    Raises:
        StatusError: The frame holds a status.
    """
    if frame[:1] == _STATUS:
        raise StatusError(status_pb2.Status.FromString(frame[1:]))
    return frame[1:]


async def everywhere(handles: Sequence[Any], method: str, request: Message, call: CallContext) -> Message:
    """An admin RPC on every replica of the deployments; one reply that names each.

    Raises:
        StatusError: What a replica answered instead, or NO_REPLICA where one did not answer in time.
    """
    answer = GetMessageClass(methods()[method].output_type)()
    arguments = (method, request.SerializeToString(), context_of(call))
    sent = [handle.broadcast("call_unary", *arguments) for handle in handles]
    try:
        replies = await asyncio.gather(*(one.results_async(timeout_s=_ADMIN_TIMEOUT_S) for one in sent))
    except (TimeoutError, RayError) as error:
        raise StatusError.retry_later("NO_REPLICA", "A replica did not answer; try again.", 1.0) from error
    for frame in itertools.chain.from_iterable(replies):
        answer.MergeFromString(message_of(frame))
    if isinstance(answer, admin_pb2.ListAdaptersResponse):
        _join_adapters(answer)
    return answer


def _join_adapters(answer: admin_pb2.ListAdaptersResponse) -> None:
    """Makes one entry of an adapter that several replicas know."""
    found: dict[tuple[str, str], admin_pb2.Adapter] = {}
    for adapter in answer.adapters:
        first = found.setdefault((adapter.model, adapter.name), adapter)
        if first is not adapter:
            first.replicas.extend(adapter.replicas)
    answer.CopyFrom(admin_pb2.ListAdaptersResponse(adapters=[found[key] for key in sorted(found)]))


class Frames:
    """A Backend as the other end of a handle.

    Args:
        backend: What answers. It is handed calls that the Router has authorized.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._classes = {name: GetMessageClass(method.input_type) for name, method in methods().items()}

    def _call(self, context: tuple[Any, ...]) -> CallContext:
        request_id, identity, remaining, traceparent, size = context
        call = CallContext(request_id=request_id, identity=identity, traceparent=traceparent, request_size=size)
        call.deadline = None if remaining is None else time.monotonic() + remaining
        return call

    async def unary(self, method: str, request: bytes, context: tuple[Any, ...]) -> bytes:
        """One frame with the answer or the status."""
        call = self._call(context)
        try:
            answer = await self._backend.unary(method, self._parsed(method, request), call)
        # The error boundary of this end: nothing is raised over a handle.
        except Exception as error:  # noqa: BLE001
            return _status_frame(error, call, method)
        return _MESSAGE + answer.SerializeToString()

    async def stream(self, method: str, request: bytes, context: tuple[Any, ...]) -> AsyncIterator[bytes]:
        """A frame for each event, and one with the status where it fails."""
        call = self._call(context)
        try:
            events = cast(Any, self._backend.stream(method, self._parsed(method, request), call))
            async with aclosing(events):
                async for event in events:
                    yield _MESSAGE + event.SerializeToString()
        # The error boundary, as above. A cancel is no Exception and passes through.
        except Exception as error:  # noqa: BLE001
            yield _status_frame(error, call, method)

    def _parsed(self, method: str, request: bytes) -> Message:
        return self._classes[method].FromString(request)


def _status_frame(error: Exception, call: CallContext, method: str) -> bytes:
    if not isinstance(error, StatusError):
        _log.error("%s failed, request %s", method, call.request_id, exc_info=error)
        error = StatusError.internal(call.request_id)
    status: bytes = error.status.SerializeToString()
    return _STATUS + status
