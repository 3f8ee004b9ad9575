"""Path variables and the query string -> fields of the request, by grpc-gateway's rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import parse_qsl

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from tokenwire_server.errors import StatusError
from tokenwire_server.rest.transcoding.decode import bad_request
from tokenwire_server.rest.transcoding.routes import Route
from tokenwire_server.rest.transcoding.values import ValueProblemError, parse_value

__all__ = ["apply_path", "apply_query"]

_MAP_KEY = re.compile(r"(.*)\[(.*)\]", re.DOTALL)
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_MAX_PARAMETERS = 1000


def apply_path(message: Message, values: Mapping[str, str]) -> None:
    """Sets the fields that the path names, over what the body said.

    Raises:
        StatusError: INVALID_ARGUMENT, a value does not fit its field.
    """
    for path, text in values.items():
        owner, field = _walk(message, path.split("."), overwrite=True)
        if field is None:  # the table is built of routes whose variables are fields
            raise AssertionError(path)
        try:
            owner.ClearField(field.name)
            for one in text.split(",") if field.is_repeated else (text,):
                _set(owner, field, parse_value(field, one))
        except (ValueProblemError, UnicodeEncodeError) as error:
            raise bad_request(f"type mismatch, parameter: {path}, error: {_why(error)}", path) from error


def apply_query(route: Route, message: Message, query: bytes) -> None:
    """Sets the fields that the query names. Keys that the message does not have are passed over.

    Raises:
        StatusError: INVALID_ARGUMENT.
    """
    for key, values in _grouped(query).items():
        match = _MAP_KEY.fullmatch(key)
        path = (match[1] if match else key).split(".")
        if match:
            values = [match[2], *values]
        if not _is_bound(route, path):
            try:
                _populate(message, path, values)
            except (ValueProblemError, UnicodeEncodeError) as error:
                raise bad_request(_why(error), ".".join(path)) from error


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, ValueProblemError) else "it is not valid Unicode"


def _grouped(query: bytes) -> dict[str, list[str]]:
    if _BAD_ESCAPE.search(query):
        raise bad_request("invalid URL escape in the query")
    if b";" in query:
        raise bad_request("invalid semicolon separator in the query")
    found: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS
        )
    except ValueError as error:  # bad UTF-8 among them
        raise bad_request("the query is not valid") from error
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def _field(descriptor: Descriptor, name: str) -> FieldDescriptor | None:
    """A field by its name in the contract, else by its JSON name."""
    field = descriptor.fields_by_name.get(name)
    return field or next((one for one in descriptor.fields if one.json_name == name), None)


def _is_bound(route: Route, path: Sequence[str]) -> bool:
    names: list[str] = []
    message: Descriptor | None = route.rpc.input_type
    for part in path:
        field = _field(message, part) if message is not None else None
        names.append(field.name if field is not None else part)
        message = field.message_type if field is not None else None
    return any(tuple(names[: len(bound)]) == bound for bound in route.bound)


def _walk(message: Any, path: Sequence[str], *, overwrite: bool = False) -> tuple[Any, FieldDescriptor | None]:
    """The message that holds the last field of a path, and that field; None where there is no such field.

    `overwrite` lets a member of a oneof be set again, as the path may what the body set.
    """
    field: FieldDescriptor | None = None
    for index, name in enumerate(path):
        field = _field(message.DESCRIPTOR, name)
        if field is None:
            return message, None
        _check_oneof(message, field, overwrite=overwrite)
        if index == len(path) - 1:
            break
        if field.message_type is None or field.is_repeated:
            raise bad_request(f'invalid path: "{name[:64]}" is not a message', ".".join(path))
        message = getattr(message, field.name)
        message.SetInParent()
    return message, field


def _check_oneof(message: Any, field: FieldDescriptor, *, overwrite: bool) -> None:
    oneof = field.containing_oneof
    if oneof is None or oneof.name == f"_{field.name}":  # `optional` is a oneof of one
        return
    other = message.WhichOneof(oneof.name)
    again_allowed = overwrite or field.message_type is not None
    if other is not None and not (again_allowed and other == field.name):
        raise bad_request(f'field already set for oneof "{oneof.name}"', field.name)


def _populate(message: Message, path: Sequence[str], values: list[str]) -> None:
    owner, field = _walk(message, path)
    if field is None:
        return
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        _set_entry(owner, field, values)
    elif field.is_repeated:
        for text in values:
            _set(owner, field, _parsed(field, text, "list"))
    elif len(values) > 1:
        raise _too_many(field, values)
    else:
        _set(owner, field, _parsed(field, values[0], "field"))


def _too_many(field: FieldDescriptor, values: Sequence[str]) -> StatusError:
    shown = ", ".join(value[:64] for value in values[:8])
    return bad_request(f'too many values for field "{field.name}": {shown}', field.name, "TOO_MANY")


def _parsed(field: FieldDescriptor, text: str, what: str) -> Any:
    try:
        return parse_value(field, text)
    except ValueProblemError as error:
        raise ValueProblemError(f'parsing {what} "{field.name}": {error}') from error


def _set(owner: Any, field: FieldDescriptor, value: Any) -> None:
    if field.is_repeated:
        getattr(owner, field.name).append(value)
    elif field.message_type is None:
        setattr(owner, field.name, value)
    else:
        target = getattr(owner, field.name)
        target.CopyFrom(value)
        target.SetInParent()


def _set_entry(owner: Any, field: FieldDescriptor, values: Sequence[str]) -> None:
    if len(values) != 2:
        shown = values[0][:64] if values else ""
        raise ValueProblemError(f'more than one value provided for key "{shown}" in map "{field.full_name}"')
    entry = cast(Descriptor, field.message_type).fields_by_name
    key = _parsed(entry["key"], values[0], "map key")
    value = _parsed(entry["value"], values[1], "map value")
    target = getattr(owner, field.name)
    if entry["value"].message_type is None:
        target[key] = value
    else:
        target[key].CopyFrom(value)
