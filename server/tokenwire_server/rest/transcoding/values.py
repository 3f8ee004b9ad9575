"""Values of query and path parameters: Go's spellings, since that is what clients of grpc-gateway write."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from google.protobuf import duration_pb2, field_mask_pb2, json_format, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

__all__ = ["ValueProblemError", "parse_duration", "parse_value"]


class ValueProblemError(ValueError):
    """A value does not fit its field; the text is ours and may be shown."""


_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|infinity|nan)", re.IGNORECASE)
_DURATION = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_NANOS = MappingProxyType(
    {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
)
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)")


def _boolean(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueProblemError(f"{_shown(text)} is not a boolean")


def _integer(bits: int, *, signed: bool) -> Callable[[str], int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)

    def parse(text: str) -> int:
        if not _INTEGER.fullmatch(text) or (not signed and text[0] in "+-"):
            raise ValueProblemError(f"{_shown(text)} is not an integer")
        value = int(text)
        if not low <= value <= high:
            raise ValueProblemError(f"{_shown(text)} is out of range")
        return value

    return parse


def _number(text: str) -> float:
    if not _FLOAT.fullmatch(text):
        raise ValueProblemError(f"{_shown(text)} is not a number")
    return float(text)


def _short_number(text: str) -> float:
    value = _number(text)
    if 3.4028235677973366e38 <= abs(value) < float("inf"):
        raise ValueProblemError(f"{_shown(text)} is out of range")
    return value


def _bytes(text: str) -> bytes:
    for altchars in (b"+/", b"-_"):
        try:
            return base64.b64decode(text.encode(), altchars, validate=True)
        except (binascii.Error, ValueError):
            continue
    raise ValueProblemError("it is not base64")


def _string(text: str) -> str:
    return text


_SCALARS: Mapping[int, Callable[[str], Any]] = MappingProxyType(
    {
        FieldDescriptor.TYPE_BOOL: _boolean,
        FieldDescriptor.TYPE_STRING: _string,
        FieldDescriptor.TYPE_BYTES: _bytes,
        FieldDescriptor.TYPE_DOUBLE: _number,
        FieldDescriptor.TYPE_FLOAT: _short_number,
        FieldDescriptor.TYPE_INT32: _integer(32, signed=True),
        FieldDescriptor.TYPE_SINT32: _integer(32, signed=True),
        FieldDescriptor.TYPE_SFIXED32: _integer(32, signed=True),
        FieldDescriptor.TYPE_INT64: _integer(64, signed=True),
        FieldDescriptor.TYPE_SINT64: _integer(64, signed=True),
        FieldDescriptor.TYPE_SFIXED64: _integer(64, signed=True),
        FieldDescriptor.TYPE_UINT32: _integer(32, signed=False),
        FieldDescriptor.TYPE_FIXED32: _integer(32, signed=False),
        FieldDescriptor.TYPE_UINT64: _integer(64, signed=False),
        FieldDescriptor.TYPE_FIXED64: _integer(64, signed=False),
    }
)


def _enum(descriptor: EnumDescriptor, text: str) -> int:
    value = descriptor.values_by_name.get(text)
    if value is None and re.fullmatch(r"[+-]?[0-9]{1,10}", text):
        value = descriptor.values_by_number.get(int(text))
    if value is None:
        raise ValueProblemError(f"{_shown(text)} is not a valid value")
    return int(value.number)


def parse_duration(text: str) -> int:
    """Nanoseconds of a duration as Go writes it: `1.5s`, `2m`, `1h30m`, `-3ms`, `0`.

    Raises:
        ValueProblemError: It is none.
    """
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    parts = _DURATION.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest or len(rest) > 64:
        raise ValueProblemError(f"{_shown(text)} is not a duration")
    nanos = sign * int(sum(Decimal(number) * _NANOS[unit] for number, unit in parts))
    if abs(nanos) >= 2**63:
        raise ValueProblemError(f"{_shown(text)} is out of range")
    return nanos


def _duration(text: str) -> Message:
    value = duration_pb2.Duration()
    value.FromNanoseconds(parse_duration(text))
    return value


def _timestamp(text: str) -> Message:
    value = timestamp_pb2.Timestamp()
    if not _RFC_3339.fullmatch(text):
        raise ValueProblemError(f"{_shown(text)} is not an RFC 3339 time")
    try:
        value.FromJsonString(text.upper())
    except ValueError as error:
        raise ValueProblemError(f"{_shown(text)} is not an RFC 3339 time") from error
    return value


def _json(kind: type[Message]) -> Callable[[str], Message]:
    def parse(text: str) -> Message:
        value = kind()
        # Counting bounds the nesting: a query of 100 brackets is nothing that anybody writes.
        if text.count("[") + text.count("{") > 100:
            raise ValueProblemError("it is nested too deeply")
        try:
            json_format.ParseDict(json.loads(text), value)
        except (json_format.ParseError, ValueError, TypeError, AttributeError) as error:
            raise ValueProblemError("it is not the JSON that is expected") from error
        return value

    return parse


def _wrapper(kind: Any) -> Callable[[str], Message]:
    parse = _SCALARS[kind.DESCRIPTOR.fields_by_name["value"].type]
    return lambda text: kind(value=parse(text))


_MESSAGES: Mapping[str, Callable[[str], Message]] = MappingProxyType(
    {
        "google.protobuf.Duration": _duration,
        "google.protobuf.Timestamp": _timestamp,
        "google.protobuf.FieldMask": lambda text: field_mask_pb2.FieldMask(paths=text.split(",")),
        "google.protobuf.Value": _json(struct_pb2.Value),
        "google.protobuf.Struct": _json(struct_pb2.Struct),
        **{
            kind.DESCRIPTOR.full_name: _wrapper(kind)
            for kind in (
                wrappers_pb2.DoubleValue,
                wrappers_pb2.FloatValue,
                wrappers_pb2.Int64Value,
                wrappers_pb2.UInt64Value,
                wrappers_pb2.Int32Value,
                wrappers_pb2.UInt32Value,
                wrappers_pb2.BoolValue,
                wrappers_pb2.StringValue,
                wrappers_pb2.BytesValue,
            )
        },
    }
)


def parse_value(field: FieldDescriptor, text: str) -> Any:
    """The value of a field (of one element, where it is repeated).

    Raises:
        ValueProblemError: The text does not fit it.
    """
    if field.enum_type is not None:
        return _enum(field.enum_type, text)
    if field.message_type is None:
        return _SCALARS[field.type](text)
    name = field.message_type.full_name
    parse = _MESSAGES.get(name)
    if parse is None:
        raise ValueProblemError(f'unsupported message type: "{name}"')
    return parse(text)


def _shown(text: str) -> str:
    return f'"{text[:64]}"'
