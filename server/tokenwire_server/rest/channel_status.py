"""What a call over a channel ended with, as a `StatusError`: the server's own where it sent one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from tokenwire_server.errors import StatusError, error_details

__all__ = ["lost_replica", "status_of"]

_DETAILS = "grpc-status-details-bin"
_RETRY_S = 1.0

# For a status without our ErrorInfo, as one from a proxy or from the transport. Its text is another's, and stays here.
_FOREIGN: Mapping[grpc.StatusCode, tuple[str, str]] = MappingProxyType(
    {
        grpc.StatusCode.DEADLINE_EXCEEDED: ("DEADLINE_EXCEEDED", "The time allowed for this call has passed."),
        grpc.StatusCode.INVALID_ARGUMENT: ("INVALID_FIELD", "The server refused the request as invalid."),
        grpc.StatusCode.UNAUTHENTICATED: ("UNAUTHENTICATED", "The server refused the API key."),
        grpc.StatusCode.PERMISSION_DENIED: ("PERMISSION_DENIED", "The server does not permit this call."),
        grpc.StatusCode.UNIMPLEMENTED: ("FEATURE_UNSUPPORTED", "The server does not serve this call."),
    }
)


def _sent_status(error: grpc.aio.AioRpcError) -> status_pb2.Status | None:
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS and isinstance(value, bytes):
            try:
                status = status_pb2.Status.FromString(value)
            except DecodeError:
                return None
            return status if status.code == error.code().value[0] else None
    return None


def _is_ours(status: status_pb2.Status | None) -> bool:
    return status is not None and error_details(status, error_details_pb2.ErrorInfo) is not None


def lost_replica(error: grpc.aio.AioRpcError) -> bool:
    """Whether the other side went away: a reset that nobody asked for, or no connection, with no status of ours."""
    gone = error.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
    return gone and not _is_ours(_sent_status(error))


def status_of(error: grpc.aio.AioRpcError, request_id: str) -> StatusError:
    """The error that a caller of this door sees.

    Args:
        error: What ended the call.
        request_id: Named where nothing else can be said.
    """
    status = _sent_status(error)
    if status is not None and _is_ours(status):
        return StatusError(status)
    if lost_replica(error):
        return StatusError.retry_later("NO_REPLICA", "The server that had this call went away; try again.", _RETRY_S)
    code = error.code()
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        # The transport refuses a message that is too large with this code too.
        if "larger than max" in (error.details() or ""):
            return StatusError.of("REQUEST_TOO_LARGE", "The message is larger than the server takes.")
        return StatusError.retry_later("RATE_LIMITED", "The server is refusing calls; try again later.", _RETRY_S)
    if code in _FOREIGN:
        return StatusError.of(*_FOREIGN[code])
    return StatusError.internal(request_id)
