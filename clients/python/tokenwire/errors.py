"""What a call can raise, as one tree.

    TokenwireError
    |-- ClientClosedError             the client was closed before or during the call
    `-- ApiError                      any gRPC status; UNKNOWN, ABORTED, DATA_LOSS have no other class
        |-- InvalidArgumentError      INVALID_ARGUMENT: INVALID_FIELD (see `field_violations`), CONTEXT_LENGTH_EXCEEDED
        |-- FailedPreconditionError   FAILED_PRECONDITION: WRONG_TASK
        |-- NotFoundError             NOT_FOUND: MODEL_NOT_FOUND, ADAPTER_NOT_FOUND
        |-- AlreadyExistsError        ALREADY_EXISTS: DUPLICATE_REQUEST_ID
        |-- UnauthenticatedError      UNAUTHENTICATED: no API key, or a wrong one
        |-- PermissionDeniedError     PERMISSION_DENIED
        |-- ResourceExhaustedError    RESOURCE_EXHAUSTED: QUEUE_FULL, RATE_LIMITED, REQUEST_TOO_LARGE
        |-- UnimplementedError        UNIMPLEMENTED: FEATURE_UNSUPPORTED
        |-- DeadlineExceededError     DEADLINE_EXCEEDED: the timeout has passed
        |-- CancelledByServerError    CANCELLED, with an ErrorInfo: the server ended the call on purpose
        |-- InternalError             INTERNAL: a fault of the server; give its operator the `request_id`
        `-- UnavailableError          UNAVAILABLE: DRAINING, ENGINE_NOT_READY, ENGINE_DEAD, NO_REPLICA, or no connection
            |-- CallResetError        the call was reset, as when its replica dies (the wire says CANCELLED)
            `-- IncompleteStreamError the stream ended with OK but without its end event

The words in capitals after a code are values of `ApiError.reason`. Wrong arguments raise `TypeError` or `ValueError`
before anything is sent. No `grpc.RpcError` leaves the library.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

__all__ = [
    "AlreadyExistsError",
    "ApiError",
    "CallResetError",
    "CancelledByServerError",
    "ClientClosedError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "IncompleteStreamError",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "TokenwireError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
]

_DETAILS_KEY = "grpc-status-details-bin"
_REQUEST_ID_KEY = "x-request-id"
_PUSHBACK_KEY = "grpc-retry-pushback-ms"

_Detail = TypeVar("_Detail", bound=Message)


class TokenwireError(Exception):
    """Base of everything that the library raises, but for wrong arguments."""


class ClientClosedError(TokenwireError):
    """The client was closed before the call, or while it ran."""


class ApiError(TokenwireError):
    """A call that ended with a gRPC status other than OK.

    Args:
        code: The gRPC status code.
        message: The status message, for a person.
        trailers: The trailing metadata. Everything else is read from it when it is first asked for.
    """

    def __init__(self, code: grpc.StatusCode, message: str, trailers: tuple[tuple[str, str | bytes], ...] = ()) -> None:
        # All three are in `args`, so that the error survives pickling.
        super().__init__(code, message, trailers)
        self.code = code
        self.message = message
        self._trailers = trailers

    def __str__(self) -> str:
        name = f"{self.code.name} ({self.reason})" if self.reason else self.code.name
        tail = f" [request id {self.request_id}]" if self.request_id else ""
        return f"{name}: {self.message}{tail}"

    @cached_property
    def status(self) -> status_pb2.Status | None:
        """The `google.rpc.Status` that the server sent, or None. Its details are for `google.rpc.error_details_pb2`."""
        raw = self._trailer(_DETAILS_KEY)
        if not isinstance(raw, bytes):
            return None
        try:
            status = status_pb2.Status.FromString(raw)
        except DecodeError:
            return None
        # gRPC's rule: a status that contradicts the call's own is not this call's.
        return status if status.code == self._wire_code.value[0] else None

    @cached_property
    def reason(self) -> str:
        """`ErrorInfo.reason`, a stable name in capitals such as MODEL_NOT_FOUND; "" where the server gave none."""
        info = self._detail(error_details_pb2.ErrorInfo)
        return info.reason if info is not None else ""

    @cached_property
    def metadata(self) -> Mapping[str, str]:
        """`ErrorInfo.metadata`: the changing parts of the message by camelCase name."""
        info = self._detail(error_details_pb2.ErrorInfo)
        return dict(info.metadata) if info is not None else {}

    @cached_property
    def request_id(self) -> str:
        """The server's id of the request, under which its log has it; "" where the call reached no server."""
        value = self._trailer(_REQUEST_ID_KEY)
        if isinstance(value, str) and value:
            return value
        info = self._detail(error_details_pb2.RequestInfo)
        return info.request_id if info is not None else ""

    @cached_property
    def retry_delay(self) -> float | None:
        """Seconds after which the server would have the call again; None where it did not say, or said never."""
        pushback = self._trailer(_PUSHBACK_KEY)
        if isinstance(pushback, str):
            # gRFC A6: negative or unreadable means "do not retry".
            return int(pushback) / 1000 if pushback.isascii() and pushback.isdigit() else None
        retry = self._detail(error_details_pb2.RetryInfo)
        return None if retry is None else max(0.0, retry.retry_delay.ToMilliseconds() / 1000)

    @cached_property
    def field_violations(self) -> list[tuple[str, str]]:
        """(path of the field, what it must be) for each field at fault, such as `sampling.temperature`."""
        bad = self._detail(error_details_pb2.BadRequest)
        return [(one.field, one.description) for one in bad.field_violations] if bad is not None else []

    @property
    def _wire_code(self) -> grpc.StatusCode:
        return self.code

    def _trailer(self, key: str) -> str | bytes | None:
        return next((value for name, value in self._trailers if name == key), None)

    def _detail(self, kind: type[_Detail]) -> _Detail | None:
        for packed in self.status.details if self.status is not None else ():
            detail = kind()
            if packed.Is(detail.DESCRIPTOR):
                try:
                    packed.Unpack(detail)
                except DecodeError:
                    return None
                return detail
        return None


class InvalidArgumentError(ApiError):
    """INVALID_ARGUMENT: a field breaks a rule, or the prompt does not fit the model's context."""


class FailedPreconditionError(ApiError):
    """FAILED_PRECONDITION: the model does not do this, as when an embedding model is asked to chat."""


class NotFoundError(ApiError):
    """NOT_FOUND: there is no such model or adapter."""


class AlreadyExistsError(ApiError):
    """ALREADY_EXISTS: a request with this `request_id` is running."""


class UnauthenticatedError(ApiError):
    """UNAUTHENTICATED: no API key, or a wrong one."""


class PermissionDeniedError(ApiError):
    """PERMISSION_DENIED: the key is valid but does not allow this."""


class ResourceExhaustedError(ApiError):
    """RESOURCE_EXHAUSTED: the server has too much to do (`retry_delay` is set), or the message is too large."""


class UnimplementedError(ApiError):
    """UNIMPLEMENTED: this server does not have the feature or the RPC."""


class DeadlineExceededError(ApiError):
    """DEADLINE_EXCEEDED: the timeout has passed."""


class CancelledByServerError(ApiError):
    """CANCELLED with an ErrorInfo: the server ended the call on purpose. It is not retried."""


class InternalError(ApiError):
    """INTERNAL: a fault of the server, whose log has it under `request_id`."""


class UnavailableError(ApiError):
    """UNAVAILABLE: there is no connection, or nobody to answer at the moment. Try again later."""


class CallResetError(UnavailableError):
    """The call was reset, as when its replica dies or a proxy gives it up.

    The wire says CANCELLED; since nobody here asked for that, `code` is UNAVAILABLE.
    """

    @property
    def _wire_code(self) -> grpc.StatusCode:
        return grpc.StatusCode.CANCELLED


class IncompleteStreamError(UnavailableError):
    """The stream ended with status OK but without its end event, or without the finish of an output.

    What came before it is in the stream's `response`, and may be cut anywhere.
    """
