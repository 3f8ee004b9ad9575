"""Errors in Anthropic's envelope, which its clients read: `{"type": "error", "error": {"type", "message"}}`."""

from __future__ import annotations

from tokenwire_server.rest.openai.encoding import dumps
from tokenwire_server.rest.openai.errors import OpenAIError

__all__ = ["anthropic_error", "is_anthropic"]

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "invalid_request_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def is_anthropic(path: str) -> bool:
    """Whether a path is of Anthropic's API."""
    return path == "/v1/messages" or path.startswith("/v1/messages/")


def anthropic_error(error: OpenAIError, request_id: str) -> bytes:
    """The body of an error."""
    message = error.message
    if error.code == "context_length_exceeded":
        message = f"prompt is too long: {message}"  # the words by which clients of this API know to shorten it
    elif error.param and error.param not in message:  # the envelope has no place of its own for it
        message = f"{error.param}: {message}"
    inner = {"type": _TYPES.get(error.status, "api_error"), "message": message}
    return dumps({"type": "error", "error": inner, "request_id": request_id})
