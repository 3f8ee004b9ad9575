"""Schemas of the OpenAI surface's parameters. Ranges are the contract's, so that they are written once."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from tokenwire.v1 import sampling_pb2
from tokenwire_server.rest.openapi.schemas import Schema, limits_of

__all__ = [
    "BOOLEAN",
    "OBJECT",
    "STRING",
    "array",
    "choice",
    "integer",
    "nullable",
    "number",
    "object_of",
    "sampling_properties",
]

STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}

_FIELDS = sampling_pb2.SamplingParams.DESCRIPTOR.fields_by_name


def integer(low: int | None = None, high: int | None = None) -> Schema:
    """An integer within a range."""
    return {"type": "integer", **_range(low, high)}


def number(low: float | None = None, high: float | None = None) -> Schema:
    """A number within a range."""
    return {"type": "number", **_range(low, high)}


def _range(low: float | None, high: float | None) -> Schema:
    found: Schema = {} if low is None else {"minimum": low}
    return found if high is None else found | {"maximum": high}


def choice(*values: str) -> Schema:
    """One of some texts."""
    return {"type": "string", "enum": list(values)}


def array(items: Schema, low: int | None = None, high: int | None = None) -> Schema:
    """A list."""
    found: Schema = {"type": "array", "items": items}
    if low is not None:
        found["minItems"] = low
    return found if high is None else found | {"maxItems": high}


def nullable(schema: Schema) -> Schema:
    """A value that may be null, which is the same as absent."""
    kind = schema.get("type")
    if isinstance(kind, str) and "enum" not in schema:
        return {**schema, "type": [kind, "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def object_of(required: list[str] | None = None, **properties: Schema) -> Schema:
    """An object; keys that are not named are passed over."""
    found: Schema = {"type": "object", "properties": properties}
    return found | {"required": required} if required else found


def sampling_properties(*, leave_out: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Properties of `SamplingParams` under the names that the OpenAI surface takes them by."""
    return {name: nullable(_plain(field)) for name, field in _FIELDS.items() if name not in leave_out}


def _plain(field: FieldDescriptor) -> Schema:
    if field.name == "stop":
        return {"anyOf": [STRING, array(STRING, high=4)]}
    if field.name == "logit_bias":
        return {"type": "object", "additionalProperties": number(-100, 100), "maxProperties": 1024}
    if field.is_repeated:
        return array(STRING if field.type == field.TYPE_STRING else integer(0), high=limits_of(field).get("maxItems"))
    if field.type == field.TYPE_BOOL:
        return dict(BOOLEAN)
    kind = "number" if field.type == field.TYPE_DOUBLE else "integer"
    return {"type": kind, **limits_of(field)}
