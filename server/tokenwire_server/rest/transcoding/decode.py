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

__all__ = ["bad_request", "decode_body"]

_MAX_DEPTH = 100
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SPACE = re.compile(r"[ \t\n\r]*")
_WHERE = re.compile(r"\bat \"?\w+((?:\.\w+|\[[^\]]*\])+)")


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
    whole = route.body == "*"
    if whole and not isinstance(value, dict) and not route.rpc.input_type.full_name.startswith("google.protobuf."):
        raise bad_request("the body is not a JSON object", kind="INVALID_TYPE")
    if not whole:
        value = {route.body: value}
    try:
        json_format.ParseDict(value, message, ignore_unknown_fields=True, max_recursion_depth=_MAX_DEPTH + 8)
    # Beyond ParseError: a lone surrogate is a UnicodeEncodeError, a number or a string of the wrong kind may be the
    # others. Their text is not ours to show; the path in it is.
    except (json_format.ParseError, ValueError, TypeError, AttributeError, OverflowError) as error:
        field = _field_path(str(error), route.rpc.input_type)
        what = f"the value of {field}" if field else "the body"
        raise bad_request(f"{what} does not fit {route.rpc.input_type.full_name}", field, "INVALID_TYPE") from error


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


def _field_path(text: str, descriptor: Descriptor) -> str:
    """Proto names of the field that json_format's error is about, or "" where it says none."""
    found = _WHERE.findall(text)
    if not found:
        return ""
    names: list[str] = []
    message: Descriptor | None = descriptor
    for part in re.findall(r"\w+|\[[^\]]*\]", found[-1]):
        if part.startswith("["):
            names[-1:] = [names[-1] + part] if names else []
            continue
        by_json = {field.json_name: field for field in message.fields} if message is not None else {}
        field = by_json.get(part) or (message.fields_by_name.get(part) if message is not None else None)
        names.append(field.name if field is not None else part[:64])
        message = field.message_type if field is not None else None
    return ".".join(names)
