"""Sets fields of a message from Python values, and says which argument is wrong."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_INTEGERS = {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64}
_FLOATS = {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}


def set_field(message: Message, name: str, value: object, *, label: str = "") -> None:
    """Sets one field.

    A lone str for a list of texts is a list of one, since its characters are never what was meant.

    Args:
        message: What to change.
        name: Name of the field.
        value: A value of its type; for a list any iterable, for a map a mapping.
        label: What an error calls the argument; the field's name where it is empty.

    Raises:
        TypeError: The value is of another type.
        ValueError: The value is out of the type's range.
    """
    label = label or name
    field: Any = message.DESCRIPTOR.fields_by_name[name]  # typed otherwise by each protobuf
    if _is_map(field):
        _set_map(getattr(message, name), field, value, label)
    elif field.is_repeated:
        _set_list(getattr(message, name), field, value, label)
    elif field.message_type is not None:
        getattr(message, name).CopyFrom(_of_message(field, value, label))
    else:
        checked = _scalar(field, value, label)
        _translated(label, lambda: setattr(message, name, checked))


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _set_map(target: Any, field: Any, value: object, label: str) -> None:
    if not isinstance(value, Mapping):
        raise _wrong(label, "a mapping", value)
    entry = field.message_type.fields_by_name
    for key, item in value.items():
        checked = _scalar(entry["key"], key, f"{label} key"), _scalar(entry["value"], item, f"{label}[{key}]")
        _translated(label, lambda pair=checked: target.__setitem__(*pair))


def _set_list(target: Any, field: Any, value: object, label: str) -> None:
    if isinstance(value, str) and field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        value = [value]
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise _wrong(label, "a list", value)
    for index, item in enumerate(value):
        place = f"{label}[{index}]"
        checked = _of_message(field, item, place) if field.message_type is not None else _scalar(field, item, place)
        _translated(place, lambda one=checked: target.append(one))


def _of_message(field: Any, value: object, label: str) -> Message:
    # By descriptor and not by class: the class may come from another import of the same stubs.
    if isinstance(value, Message) and value.DESCRIPTOR.full_name == field.message_type.full_name:
        return value
    raise _wrong(label, f"a {field.message_type.full_name}", value)


def _scalar(field: Any, value: object, label: str) -> object:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        if isinstance(value, bool):
            return value
        raise _wrong(label, "a bool", value)
    if kind in _INTEGERS:
        return _integer(value, label)
    if kind in _FLOATS:
        # `__float__` takes numpy's scalars, which are no Python floats.
        if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
            raise _wrong(label, "a number", value)
        return float(value)
    if kind == FieldDescriptor.CPPTYPE_STRING:
        if isinstance(value, str):
            return value
        raise _wrong(label, "a str", value)
    return value


def _integer(value: object, label: str) -> int:
    # A bool is an int to Python; `max_tokens=True` is a mistake.
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type]  # what is no integer raises
        except TypeError:
            pass
    raise _wrong(label, "an int", value)


def _translated(label: str, change: Any) -> None:
    try:
        change()
    except (TypeError, ValueError, UnicodeEncodeError) as error:
        # Protobuf's own text does not name the field: 5000000000 in an int32, a lone surrogate in a str.
        raise ValueError(f"{label}: the value does not fit its field") from error


def _wrong(label: str, expected: str, value: object) -> TypeError:
    return TypeError(f"{label}: expected {expected}, got {type(value).__name__}")
