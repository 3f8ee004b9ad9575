"""Reading a JSON body: bounded while it is read, bounded in depth, and refused in words of our own."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request

from tokenwire_server.errors import StatusError
from tokenwire_server.rest.openai.errors import OpenAIError

__all__ = ["parse_json", "read_body", "read_bytes"]

_MAX_DEPTH = 128
_UNPARSED = "We could not parse the JSON body of your request."


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The whole body of an OpenAI request.

    Raises:
        OpenAIError: 415 for what is not JSON.
        StatusError: REQUEST_TOO_LARGE.
    """
    _check_type(request)
    return await read_bytes(request, max_bytes)


async def read_bytes(request: Request, max_bytes: int) -> bytes:
    """The whole body, whatever it is.

    Raises:
        StatusError: REQUEST_TOO_LARGE, as soon as it is known.
    """
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > max_bytes:
        raise _too_large(max_bytes)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


def parse_json(body: bytes) -> dict[str, Any]:
    """A JSON object. NaN, Infinity, bad UTF-8 and lone surrogates are not JSON.

    Raises:
        OpenAIError: 400.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise OpenAIError(400, _UNPARSED) from error
    # Counting brackets is one pass in C, and settles nearly every request.
    brackets = body.count(b"[") + body.count(b"{")
    if not isinstance(value, dict) or (brackets > _MAX_DEPTH and _deeper_than(value, _MAX_DEPTH)):
        raise OpenAIError(400, _UNPARSED)
    return value


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        children: list[Any] = []
        for one in level:
            items = one.values() if isinstance(one, dict) else one
            children.extend(item for item in items if isinstance(item, dict | list))
        if not children:
            return False
        level = children
    return True


def _check_type(request: Request) -> None:
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind and kind != "application/json" and not kind.endswith("+json"):
        raise _unsupported(f"Unsupported content type: '{kind[:64]}'. Expected 'application/json'.")
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise _unsupported(f"Unsupported content encoding: '{coding[:64]}'. Send the body as it is.")


def _unsupported(message: str) -> OpenAIError:
    return OpenAIError(415, message, code="unsupported_content_type")


def _too_large(max_bytes: int) -> StatusError:
    message = f"The body of your request is too large: at most {max_bytes} bytes are accepted."
    return StatusError.of("REQUEST_TOO_LARGE", message, metadata={"limit": str(max_bytes)})
