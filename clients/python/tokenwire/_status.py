"""From gRPC's errors to ours: the only place that reads a `grpc.RpcError`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import grpc

from tokenwire import errors

_CLASSES: Mapping[grpc.StatusCode, type[errors.ApiError]] = MappingProxyType(
    {
        grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidArgumentError,
        grpc.StatusCode.FAILED_PRECONDITION: errors.FailedPreconditionError,
        grpc.StatusCode.NOT_FOUND: errors.NotFoundError,
        grpc.StatusCode.ALREADY_EXISTS: errors.AlreadyExistsError,
        grpc.StatusCode.UNAUTHENTICATED: errors.UnauthenticatedError,
        grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDeniedError,
        grpc.StatusCode.RESOURCE_EXHAUSTED: errors.ResourceExhaustedError,
        grpc.StatusCode.UNIMPLEMENTED: errors.UnimplementedError,
        grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceededError,
        grpc.StatusCode.CANCELLED: errors.CancelledByServerError,
        grpc.StatusCode.INTERNAL: errors.InternalError,
        grpc.StatusCode.UNAVAILABLE: errors.UnavailableError,
    }
)

_RESET = "the call was reset before it ended: its replica died or stopped, or a proxy gave it up"


def from_rpc_error(error: grpc.RpcError) -> errors.ApiError:
    """The error that the user sees for one of gRPC's, sync or aio. The caller did not cancel the call itself."""
    code = error.code()
    message = error.details() or ""
    # `grpc.aio` gives its own Metadata class, or None; both flavours iterate as pairs.
    pairs: Iterable[Any] = error.trailing_metadata() or ()
    trailers = tuple((key, value) for key, value in pairs)
    failure = _CLASSES.get(code, errors.ApiError)(code, message, trailers)
    if code is grpc.StatusCode.CANCELLED and not failure.reason:
        # A reset carries no status of the server's, whose own CANCELLED has an ErrorInfo.
        return errors.CallResetError(grpc.StatusCode.UNAVAILABLE, _RESET, trailers)
    return failure
