"""JSON Schema of the contract's messages, their protovalidate ranges among it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from google.api import field_behavior_pb2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from buf.validate import validate_pb2

__all__ = ["SchemaBook", "limits_of"]

Schema = dict[str, Any]

_SCALARS: Mapping[int, Schema] = MappingProxyType(
    {
        FieldDescriptor.TYPE_DOUBLE: {"type": "number", "format": "double"},
        FieldDescriptor.TYPE_FLOAT: {"type": "number", "format": "float"},
        FieldDescriptor.TYPE_INT32: {"type": "integer", "format": "int32"},
        FieldDescriptor.TYPE_SINT32: {"type": "integer", "format": "int32"},
        FieldDescriptor.TYPE_UINT32: {"type": "integer", "format": "int64", "minimum": 0},
        FieldDescriptor.TYPE_INT64: {"type": "string", "format": "int64"},
        FieldDescriptor.TYPE_SINT64: {"type": "string", "format": "int64"},
        FieldDescriptor.TYPE_UINT64: {"type": "string", "format": "uint64"},
        FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
        FieldDescriptor.TYPE_STRING: {"type": "string"},
        FieldDescriptor.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
    }
)
_WELL_KNOWN: Mapping[str, Schema] = MappingProxyType(
    {
        "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
        "google.protobuf.Duration": {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s$"},
        "google.protobuf.Struct": {"type": "object"},
        "google.protobuf.ListValue": {"type": "array"},
        "google.protobuf.Value": {},
        "google.protobuf.Any": {"type": "object", "properties": {"@type": {"type": "string"}}},
    }
)
_BOUNDS: Mapping[str, str] = MappingProxyType(
    {"gte": "minimum", "gt": "exclusiveMinimum", "lte": "maximum", "lt": "exclusiveMaximum"}
)
_LENGTHS: Mapping[str, str] = MappingProxyType(
    {
        "min_len": "minLength",
        "max_len": "maxLength",
        "pattern": "pattern",
        "min_items": "minItems",
        "max_items": "maxItems",
        "max_pairs": "maxProperties",
    }
)


def limits_of(field: FieldDescriptor) -> Schema:
    """The part of a field's protovalidate rule that JSON Schema can say."""
    rules = field.GetOptions().Extensions[validate_pb2.field]
    kind = rules.WhichOneof("type")
    rule: Any = getattr(rules, kind) if kind else None
    if rule is None or kind in ("duration", "enum", "bool", "bytes"):
        return {}
    found = {_LENGTHS[one.name]: value for one, value in rule.ListFields() if one.name in _LENGTHS}
    return found | {_BOUNDS[one.name]: value for one, value in rule.ListFields() if one.name in _BOUNDS}


class SchemaBook:
    """Collects the schemas that are referred to."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}

    def message(self, message: Descriptor) -> Schema:
        """The schema of a message: a reference, but for the well-known types."""
        known = _WELL_KNOWN.get(message.full_name)
        if known is not None:
            return dict(known)
        if message.full_name not in self.schemas:
            schema: Schema = {"type": "object"}
            self.schemas[message.full_name] = schema  # before its fields, which may refer to it
            schema["properties"] = {field.json_name: self.field(field) for field in message.fields}
            required = [field.json_name for field in message.fields if _is_required(field)]
            if required:
                schema["required"] = required
        return _reference(message.full_name)

    def field(self, field: FieldDescriptor) -> Schema:
        """The schema of a field."""
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value = self.element(field.message_type.fields_by_name["value"])
            return {"type": "object", "additionalProperties": value, **limits_of(field)}
        element = self.element(field)
        if field.is_repeated:
            return {"type": "array", "items": element, **limits_of(field)}
        if field.message_type is not None and element:
            return {"anyOf": [element, {"type": "null"}]}  # unset: null in answers, and taken as such in requests
        return {**element, **limits_of(field)}

    def element(self, field: FieldDescriptor) -> Schema:
        """The schema of one value of a field."""
        if field.message_type is not None:
            return self.message(field.message_type)
        if field.enum_type is not None:
            return self._enum(field.enum_type)
        return dict(_SCALARS[field.type])

    def _enum(self, enum: EnumDescriptor) -> Schema:
        self.schemas[enum.full_name] = {"type": "string", "enum": [value.name for value in enum.values]}
        return _reference(enum.full_name)


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _is_required(field: FieldDescriptor) -> bool:
    behaviours = field.GetOptions().Extensions[field_behavior_pb2.field_behavior]
    return field_behavior_pb2.REQUIRED in behaviours
