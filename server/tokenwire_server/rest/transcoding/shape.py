"""What protobuf's JSON decoder lets through or does not say: wrong shapes, unknown enum names, the field at fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

__all__ = ["DECODE_ERRORS", "find_fault", "find_misfit", "is_plain"]

DECODE_ERRORS = (json_format.ParseError, ValueError, TypeError, AttributeError, OverflowError)
"""What `ParseDict` raises: beyond ParseError, a lone surrogate is a UnicodeEncodeError, and a value of a wrong kind may
be any of the others."""


def is_plain(message: Descriptor) -> bool:
    """Whether a message's JSON is an object of its fields, as it is for all but the well-known types."""
    return not message.full_name.startswith("google.protobuf.")


def _fields(value: Mapping[str, Any], message: Descriptor) -> Iterator[tuple[str, FieldDescriptor, Any]]:
    by_json = {field.json_name: field for field in message.fields}
    for name, item in value.items():
        field = by_json.get(name) or message.fields_by_name.get(name)
        if field is not None and item is not None:
            yield name, field, item


def _elements(field: FieldDescriptor, item: Any) -> Iterator[tuple[str, FieldDescriptor, Any]]:
    """The values of a field with what stands after its name in a path: nothing, an index or a key."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name["value"]
        for key, one in item.items() if isinstance(item, dict) else ():
            yield f"[{key[:64]}]", entry, one
    elif field.is_repeated:
        for index, one in enumerate(item if isinstance(item, list) else ()):
            yield f"[{index}]", field, one
    else:
        yield "", field, item


def find_misfit(value: Mapping[str, Any], message: Descriptor, prefix: str = "") -> str | None:
    """Path of the first value that `ParseDict` would take and must not.

    A non-object for a message, an unknown enum name, and a field given under both of its names.
    """
    seen: set[str] = set()
    for _, field, item in _fields(value, message):
        if field.name in seen:
            return f"{prefix}{field.name}"
        seen.add(field.name)
        if field.message_type is None and field.enum_type is None:
            continue
        for suffix, owner, one in _elements(field, item):
            path = f"{prefix}{field.name}{suffix}"
            if isinstance(one, str) and owner.enum_type is not None and one not in owner.enum_type.values_by_name:
                return path
            if owner.message_type is not None and is_plain(owner.message_type):
                if not isinstance(one, dict):
                    return path
                inner = find_misfit(one, owner.message_type, f"{path}.")
                if inner is not None:
                    return inner
    return None


def find_fault(value: Mapping[str, Any], message: Descriptor, prefix: str = "") -> str:
    """Path of the value that `ParseDict` refuses, by trying the parts; "" where only the whole is at fault."""
    for name, field, item in _fields(value, message):
        if _fits(name, item, message):
            continue
        for suffix, owner, one in _elements(field, item):
            inner = owner.message_type
            if inner is not None and is_plain(inner) and isinstance(one, dict):
                found = find_fault(one, inner, f"{prefix}{field.name}{suffix}.")
                if found:
                    return found
        return f"{prefix}{field.name}"
    return ""


def _fits(name: str, item: Any, message: Descriptor) -> bool:
    try:
        json_format.ParseDict({name: item}, GetMessageClass(message)(), ignore_unknown_fields=True)
    except DECODE_ERRORS:
        return False
    return True
