"""What can go wrong, as one table and one exception.

Everything that is raised towards a caller is a `StatusError`, which carries a `google.rpc.Status` with an `ErrorInfo`
and what belongs to it. Nothing else crosses a door, and no text of another library's exception is ever put in.

    StatusError
    |-- INVALID_ARGUMENT      INVALID_FIELD (BadRequest), CONTEXT_LENGTH_EXCEEDED
    |-- FAILED_PRECONDITION   WRONG_TASK
    |-- NOT_FOUND             MODEL_NOT_FOUND, ADAPTER_NOT_FOUND (ResourceInfo)
    |-- ALREADY_EXISTS        DUPLICATE_REQUEST_ID
    |-- UNAUTHENTICATED       UNAUTHENTICATED
    |-- PERMISSION_DENIED     PERMISSION_DENIED
    |-- RESOURCE_EXHAUSTED    REQUEST_TOO_LARGE, QUEUE_FULL, RATE_LIMITED (RetryInfo)
    |-- UNAVAILABLE           DRAINING, ENGINE_NOT_READY, ENGINE_DEAD, NO_REPLICA (RetryInfo)
    |-- UNIMPLEMENTED         FEATURE_UNSUPPORTED
    |-- DEADLINE_EXCEEDED     DEADLINE_EXCEEDED
    |-- CANCELLED             CANCELLED
    `-- INTERNAL              INTERNAL

`REASONS` is the one place that says which gRPC code, HTTP status and OpenAI error each has; docs/errors.md is written
from it and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

__all__ = ["DOMAIN", "REASONS", "Reason", "StartError", "StatusError", "Violation", "error_details"]

DOMAIN = "tokenwire.dev"
"""`ErrorInfo.domain` of every error written here."""

_MAX_TEXT = 1024
"""Characters of a message: a gRPC trailer holds 16 KiB in all, and the message counts twice."""

_MAX_VIOLATIONS = 16
"""Violations named in one BadRequest; more would not fit the trailer."""

_Detail = TypeVar("_Detail", bound=Message)


@dataclass(frozen=True)
class Reason:
    """A row of the table: how one reason appears on each door."""

    grpc_code: int
    """A `google.rpc.Code`."""
    http_status: int
    """On the OpenAI surface; the gateway derives its own from the gRPC code."""
    openai_type: str
    """`error.type`."""
    openai_code: str | None
    """`error.code`; None where it is null or comes from the violated rule."""


_INVALID = "invalid_request_error"

REASONS: Mapping[str, Reason] = MappingProxyType(
    {
        "INVALID_FIELD": Reason(code_pb2.INVALID_ARGUMENT, 400, _INVALID, None),
        "CONTEXT_LENGTH_EXCEEDED": Reason(code_pb2.INVALID_ARGUMENT, 400, _INVALID, "context_length_exceeded"),
        "WRONG_TASK": Reason(code_pb2.FAILED_PRECONDITION, 400, _INVALID, "unsupported_model"),
        "MODEL_NOT_FOUND": Reason(code_pb2.NOT_FOUND, 404, _INVALID, "model_not_found"),
        "ADAPTER_NOT_FOUND": Reason(code_pb2.NOT_FOUND, 404, _INVALID, "model_not_found"),
        "DUPLICATE_REQUEST_ID": Reason(code_pb2.ALREADY_EXISTS, 409, _INVALID, "duplicate_request_id"),
        "UNAUTHENTICATED": Reason(code_pb2.UNAUTHENTICATED, 401, _INVALID, "invalid_api_key"),
        "PERMISSION_DENIED": Reason(code_pb2.PERMISSION_DENIED, 403, "permission_error", None),
        "REQUEST_TOO_LARGE": Reason(code_pb2.RESOURCE_EXHAUSTED, 413, _INVALID, "request_too_large"),
        "QUEUE_FULL": Reason(code_pb2.RESOURCE_EXHAUSTED, 429, "rate_limit_error", "rate_limit_exceeded"),
        "RATE_LIMITED": Reason(code_pb2.RESOURCE_EXHAUSTED, 429, "rate_limit_error", "rate_limit_exceeded"),
        "DRAINING": Reason(code_pb2.UNAVAILABLE, 503, "server_error", "server_is_overloaded"),
        "ENGINE_NOT_READY": Reason(code_pb2.UNAVAILABLE, 503, "server_error", "server_is_overloaded"),
        "ENGINE_DEAD": Reason(code_pb2.UNAVAILABLE, 503, "server_error", "server_is_overloaded"),
        "NO_REPLICA": Reason(code_pb2.UNAVAILABLE, 503, "server_error", "server_is_overloaded"),
        "FEATURE_UNSUPPORTED": Reason(code_pb2.UNIMPLEMENTED, 400, _INVALID, "unsupported_parameter"),
        "DEADLINE_EXCEEDED": Reason(code_pb2.DEADLINE_EXCEEDED, 504, "server_error", "timeout"),
        "CANCELLED": Reason(code_pb2.CANCELLED, 499, "server_error", None),
        "INTERNAL": Reason(code_pb2.INTERNAL, 500, "server_error", "internal_error"),
    }
)


@dataclass(frozen=True)
class Violation:
    """One field that breaks a rule."""

    field: str
    """Path of the field in the request message, such as `sampling.temperature` or `messages[0].role`."""
    description: str
    """What it must be, in a form that completes "the value ...", without the value itself."""
    kind: str = "INVALID_VALUE"
    """UPPER_SNAKE kind of the rule, which becomes `FieldViolation.reason`: REQUIRED, EMPTY, BELOW_MIN, ABOVE_MAX,
    TOO_LONG, TOO_MANY, INVALID_TYPE, INVALID_VALUE, OUT_OF_VOCABULARY."""


class StatusError(Exception):
    """An error that a caller may see, as a `google.rpc.Status`. Build one with the class methods."""

    def __init__(self, status: status_pb2.Status) -> None:
        super().__init__(status.message)
        self.status = status

    @property
    def code(self) -> grpc.StatusCode:
        """The gRPC status code."""
        number = self.status.code
        return next((code for code in grpc.StatusCode if code.value[0] == number), grpc.StatusCode.UNKNOWN)

    @property
    def reason(self) -> str:
        """`ErrorInfo.reason`: a key of `REASONS`, or "" where the status has none."""
        info = error_details(self.status, error_details_pb2.ErrorInfo)
        return info.reason if info is not None else ""

    @property
    def retry_delay_s(self) -> float | None:
        """`RetryInfo.retry_delay` in seconds, or None where retrying does not help."""
        retry = error_details(self.status, error_details_pb2.RetryInfo)
        return None if retry is None else retry.retry_delay.ToMilliseconds() / 1000

    @classmethod
    def of(cls, reason: str, message: str, *details: Message, metadata: Mapping[str, str] | None = None) -> StatusError:
        """Builds the error of a row of `REASONS`.

        Args:
            reason: A key of `REASONS`.
            message: For a person; cut at 1024 characters.
            *details: `google.rpc` detail messages, each type at most once.
            metadata: The changing parts of the message, by camelCase name.
        """
        info = error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata or {})
        status = status_pb2.Status(code=REASONS[reason].grpc_code, message=message[:_MAX_TEXT])
        for detail in (info, *details):
            packed = any_pb2.Any()
            packed.Pack(detail)
            status.details.append(packed)
        return cls(status)

    @classmethod
    def invalid(cls, violations: Iterable[Violation]) -> StatusError:
        """INVALID_FIELD with a BadRequest that names each field; the message is the first one's."""
        named = list(violations)[:_MAX_VIOLATIONS]
        bad = error_details_pb2.BadRequest()
        for one in named:
            bad.field_violations.add(field=one.field, description=one.description[:256], reason=one.kind)
        first = named[0]
        text = f"{first.field}: {first.description}" if first.field else first.description
        return cls.of("INVALID_FIELD", text, bad, metadata={"field": first.field[:256]})

    @classmethod
    def field(cls, field: str, description: str, kind: str = "INVALID_VALUE") -> StatusError:
        """INVALID_FIELD for one field; see `Violation`."""
        return cls.invalid([Violation(field, description, kind)])

    @classmethod
    def retry_later(cls, reason: str, message: str, delay_s: float) -> StatusError:
        """An error that goes away: QUEUE_FULL, RATE_LIMITED or one of UNAVAILABLE, with RetryInfo of `delay_s`."""
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(int(delay_s * 1000))
        return cls.of(reason, message, retry)

    @classmethod
    def not_found(cls, reason: str, kind: str, name: str, known: Iterable[str]) -> StatusError:
        """MODEL_NOT_FOUND or ADAPTER_NOT_FOUND, naming what there is."""
        shown = name[:128]
        there = ", ".join(sorted(known)[:20]) or "none"
        resource = error_details_pb2.ResourceInfo(resource_type=kind, resource_name=shown)
        text = f"The {kind} `{shown}` does not exist or you do not have access to it. Known: {there}."
        return cls.of(reason, text, resource, metadata={kind: shown})

    @classmethod
    def unsupported(cls, field: str, message: str) -> StatusError:
        """FEATURE_UNSUPPORTED, naming the field that asked for it."""
        bad = error_details_pb2.BadRequest()
        bad.field_violations.add(field=field, description=message[:256], reason="UNSUPPORTED")
        return cls.of("FEATURE_UNSUPPORTED", f"{field}: {message}", bad, metadata={"field": field})

    @classmethod
    def too_long(cls, field: str, message: str, metadata: Mapping[str, str]) -> StatusError:
        """CONTEXT_LENGTH_EXCEEDED, naming the prompt's field; the metadata has the numbers."""
        bad = error_details_pb2.BadRequest()
        bad.field_violations.add(field=field, description="is too long for the model", reason="TOO_LONG")
        return cls.of("CONTEXT_LENGTH_EXCEEDED", message, bad, metadata={**metadata, "field": field})

    @classmethod
    def internal(cls, request_id: str) -> StatusError:
        """INTERNAL: says nothing but the request id, under which the log has the rest."""
        info = error_details_pb2.RequestInfo(request_id=request_id)
        text = f"Internal error. Give the operator the request id {request_id}."
        return cls.of("INTERNAL", text, info, metadata={"requestId": request_id})


class StartError(Exception):
    """The service, or an engine, cannot start. Its text is for the operator: one line that says why and what to do."""

    EXIT_CODE = 3
    """Exit code of every start that failed: configuration, ports, model, Ray."""


def error_details(status: status_pb2.Status, kind: type[_Detail]) -> _Detail | None:
    """The detail message of type `kind` in a status, or None."""
    for packed in status.details:
        detail = kind()
        if packed.Is(detail.DESCRIPTOR):
            packed.Unpack(detail)
            return detail
    return None
