"""The one error shape of the OpenAI surface, and how a `google.rpc.Status` becomes it.

Everything comes from the reason table, BadRequest, RetryInfo and ResourceInfo; nothing is read out of a message's text.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from types import MappingProxyType

from google.rpc import code_pb2, error_details_pb2

from tokenwire_server.errors import DOMAIN, REASONS, Reason, StatusError, error_details
from tokenwire_server.rest.openai.encoding import dumps
from tokenwire_server.rest.openai.params import ParamNames

__all__ = ["OpenAIError", "describe", "from_status", "internal"]

_log = logging.getLogger(__name__)

_INVALID = "invalid_request_error"

_BY_GRPC_CODE: Mapping[int, Reason] = MappingProxyType(
    {
        code_pb2.INVALID_ARGUMENT: Reason(code_pb2.INVALID_ARGUMENT, 400, _INVALID, None),
        code_pb2.OUT_OF_RANGE: Reason(code_pb2.OUT_OF_RANGE, 400, _INVALID, None),
        code_pb2.FAILED_PRECONDITION: Reason(code_pb2.FAILED_PRECONDITION, 400, _INVALID, None),
        code_pb2.NOT_FOUND: Reason(code_pb2.NOT_FOUND, 404, _INVALID, None),
        code_pb2.ALREADY_EXISTS: REASONS["DUPLICATE_REQUEST_ID"],
        code_pb2.UNAUTHENTICATED: REASONS["UNAUTHENTICATED"],
        code_pb2.PERMISSION_DENIED: REASONS["PERMISSION_DENIED"],
        code_pb2.RESOURCE_EXHAUSTED: REASONS["RATE_LIMITED"],
        code_pb2.UNAVAILABLE: REASONS["NO_REPLICA"],
        code_pb2.UNIMPLEMENTED: REASONS["FEATURE_UNSUPPORTED"],
        code_pb2.DEADLINE_EXCEEDED: REASONS["DEADLINE_EXCEEDED"],
        code_pb2.CANCELLED: REASONS["CANCELLED"],
    }
)
"""For a status that has no reason of ours, as one from a proxy; every other code is 500."""

_CODE_OF_KIND: Mapping[str, str] = MappingProxyType(
    {
        "REQUIRED": "missing_required_parameter",
        "EMPTY": "empty_array",
        "BELOW_MIN": "integer_below_min_value",
        "ABOVE_MAX": "integer_above_max_value",
        "TOO_LONG": "string_above_max_length",
        "TOO_MANY": "array_above_max_length",
        "INVALID_TYPE": "invalid_type",
        "OUT_OF_VOCABULARY": "invalid_value",
    }
)

_DECIMALS = frozenset(
    {"temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias"}
)


class OpenAIError(Exception):
    """An error as an OpenAI client sees it.

    Args:
        status: HTTP status.
        message: For a person.
        code: Stable string for programs, or None.
        param: The parameter at fault, or None.
        kind: `error.type`.
        headers: Headers that belong to the status, such as `retry-after`.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        kind: str = _INVALID,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.kind = kind
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        """The envelope: four keys, always all of them."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return dumps({"error": error})


def describe(error: Exception, names: ParamNames | None, request_id: str) -> OpenAIError:
    """Any exception as a client may see it; what is not ours is logged and hidden behind the request id."""
    if isinstance(error, OpenAIError):
        return error
    if isinstance(error, StatusError):
        return from_status(error, names, request_id)
    _log.error("unexpected error", exc_info=error, extra={"request_id": request_id})
    return internal(request_id)


def internal(request_id: str) -> OpenAIError:
    """500 that says nothing but the request id."""
    return from_status(StatusError.internal(request_id), None, request_id)


def from_status(error: StatusError, names: ParamNames | None, request_id: str) -> OpenAIError:
    """Translates a status.

    Args:
        error: What the backend raised.
        names: How the request that failed names its fields; None where there was no body.
        request_id: Put in the text of an internal error that has none of ours.
    """
    info = error_details(error.status, error_details_pb2.ErrorInfo)
    reason = info.reason if info is not None and info.domain == DOMAIN else ""
    row = REASONS.get(reason) or _BY_GRPC_CODE.get(error.status.code)
    if row is None:
        return internal(request_id)
    message = error.status.message or "The request failed."
    code, param = row.openai_code, None
    if row.http_status == 404 and code == "model_not_found":
        message = _model_message(error) or message
    elif reason == "CONTEXT_LENGTH_EXCEEDED":
        param = names.prompt if names else None
        message = _context_message(message, info)
    elif row.grpc_code in (code_pb2.INVALID_ARGUMENT, code_pb2.UNIMPLEMENTED):
        param, kind, message = _violation(error, names, message)
        code = code or _code(kind, param)
    return OpenAIError(
        row.http_status, message, code=code, param=param, kind=row.openai_type, headers=_headers(row, error)
    )


def _model_message(error: StatusError) -> str | None:
    resource = error_details(error.status, error_details_pb2.ResourceInfo)
    if resource is None:
        return None
    return f"The model `{resource.resource_name}` does not exist or you do not have access to it."


def _context_message(message: str, info: error_details_pb2.ErrorInfo | None) -> str:
    # litellm, LangChain and Aider recognise the error by these words.
    limit = info.metadata.get("maxModelLen") if info is not None else None
    if "maximum context length is" in message or not limit:
        return message
    return f"This model's maximum context length is {limit} tokens. {message}"


def _violation(error: StatusError, names: ParamNames | None, message: str) -> tuple[str | None, str, str]:
    bad = error_details(error.status, error_details_pb2.BadRequest)
    if bad is None or not bad.field_violations:
        return None, "", message
    first = bad.field_violations[0]
    param = names.param(first.field) if names and first.field else (first.field or None)
    if param is None:
        return None, first.reason, message
    why = first.description.rstrip(".")
    if first.reason == "UNSUPPORTED":
        return param, first.reason, f"Unsupported parameter: '{param}' {why}."
    return param, first.reason, f"Invalid '{param}': {why}."


def _code(kind: str, param: str | None) -> str | None:
    if param in _DECIMALS and kind in ("BELOW_MIN", "ABOVE_MAX"):
        return _CODE_OF_KIND[kind].replace("integer", "decimal")
    return _CODE_OF_KIND.get(kind, "invalid_value") if kind else None


def _headers(row: Reason, error: StatusError) -> dict[str, str]:
    if row.http_status == 401:
        return {"www-authenticate": "Bearer"}
    if row.http_status in (429, 503):
        # At least 1: a client that reads 0 comes back at once, and its retry runs a whole generation again.
        return {"retry-after": str(max(1, math.ceil(error.retry_delay_s or 0)))}
    return {}
