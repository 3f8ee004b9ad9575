"""A request body -> its message. Size and nesting are known before anything is parsed."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from tokenwire_server.errors import StatusError
from tokenwire_server.rest.transcoding.routes import Route
from tokenwire_server.rest.transcoding.shape import DECODE_ERRORS, find_fault, find_misfit, is_plain

__all__ = ["bad_request", "decode_body"]

_MAX_DEPTH = 100
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SPACE = re.compile(r"[ \t\n\r]*")
_MAX_SEARCHED = 1 << 16
"""Bytes of a body in which the value at fault is looked for: the search tries parts, level by level."""


class _RefusedError(ValueError):
    """A value that Python's decoder takes and JSON or protobuf does not."""


def bad_request(message: str, field: str = "", kind: str = "INVALID_VALUE") -> StatusError:
    """INVALID_ARGUMENT with grpc-gateway's words as its message, and the field at fault in its details."""
    error = StatusError.field(field, message, kind)
    error.status.message = message[:1024]
    return error


def decode_body(route: Route, data: bytes, message: Message) -> None:
    """Reads a body into a request: the whole of it, or the field that the route's `body` names.

    Only the first JSON value is read. Unknown fields are passed over; an empty body is an empty message.

    Raises:
        StatusError: INVALID_ARGUMENT.
    """
    if not data.strip():
        return
    value = _first_value(data)
    if route.takes_any and b'"@type"' in data:
        raise bad_request("google.protobuf.Any is not taken in a request")
    kind = route.rpc.input_type
    if route.body != "*":
        value = {route.body: value}
    elif not isinstance(value, dict) and is_plain(kind):
        raise bad_request("the body is not a JSON object", kind="INVALID_TYPE")
    misfit = find_misfit(value, kind) if isinstance(value, dict) and is_plain(kind) else None
    if misfit is not None:
        raise _unfit(kind, misfit)
    try:
        json_format.ParseDict(value, message, ignore_unknown_fields=True, max_recursion_depth=_MAX_DEPTH + 8)
    except DECODE_ERRORS as error:
        small = isinstance(value, dict) and is_plain(kind) and len(data) <= _MAX_SEARCHED
        raise _unfit(kind, find_fault(value, kind) if small else "") from error


def _unfit(kind: Descriptor, field: str) -> StatusError:
    what = f"the value of {field}" if field else "the body"
    return bad_request(f"{what} does not fit {kind.full_name}", field, "INVALID_TYPE")


def _first_value(data: bytes) -> Any:
    if data.count(b"[") + data.count(b"{") > _MAX_DEPTH and _depth(data) > _MAX_DEPTH:
        raise bad_request(f"the body is nested more than {_MAX_DEPTH} levels deep")
    try:
        text = data.decode()
        start = _SPACE.match(text)
        return _DECODER.raw_decode(text, start.end() if start else 0)[0]
    except (ValueError, RecursionError) as error:
        raise bad_request("the body is not JSON") from error


def _depth(data: bytes) -> int:
    deepest = depth = 0
    for byte in _STRING.sub(b"", data):
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _RefusedError
    return found


def _no_constant(_: str) -> NoReturn:
    raise _RefusedError


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
