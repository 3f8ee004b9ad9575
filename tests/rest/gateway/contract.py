"""A contract for tests alone, built at run time: it has what the real one does not use."""

from __future__ import annotations

from typing import Any

from google.api import annotations_pb2, http_pb2, httpbody_pb2
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "tokenwire.gatewaytest.v1"
_KINDS = descriptor_pb2.FieldDescriptorProto
_IMPORTS = (
    *(annotations_pb2, httpbody_pb2, any_pb2, duration_pb2, field_mask_pb2),
    *(struct_pb2, timestamp_pb2, wrappers_pb2),
)
_SCALARS = ("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "bool", "string", "bytes")


def _add(message: Any, spec: str) -> None:
    """Adds a field written as `[repeated|optional|oneof:name] type name number`."""
    *labels, kind, name, number = spec.split()
    label = labels[0] if labels else ""
    field = message.field.add(name=name, number=int(number), json_name=_camel(name), label=_KINDS.LABEL_OPTIONAL)
    if label == "repeated":
        field.label = _KINDS.LABEL_REPEATED
    if label == "optional" or label.startswith("oneof:"):
        oneof = label.removeprefix("oneof:") if label != "optional" else f"_{name}"
        names = [one.name for one in message.oneof_decl]
        if oneof not in names:
            message.oneof_decl.add(name=oneof)
            names.append(oneof)
        field.oneof_index = names.index(oneof)
        field.proto3_optional = label == "optional"
    if kind in _SCALARS:
        field.type = _KINDS.Type.Value(f"TYPE_{kind.upper()}")
    elif kind == "Color":
        field.type, field.type_name = _KINDS.TYPE_ENUM, f".{PACKAGE}.Color"
    elif kind.startswith("map<"):
        _add_map(message, field, *kind[4:-1].split(","))
    else:
        full = kind if "." in kind else f"{PACKAGE}.{kind}"
        field.type, field.type_name = _KINDS.TYPE_MESSAGE, f".{full}"


def _add_map(message: Any, field: Any, key: str, value: str) -> None:
    entry = message.nested_type.add(name=f"{_camel(field.name)[0].upper()}{_camel(field.name)[1:]}Entry")
    entry.options.map_entry = True
    _add(entry, f"{key} key 1")
    _add(entry, f"{value} value 2")
    field.label, field.type = _KINDS.LABEL_REPEATED, _KINDS.TYPE_MESSAGE
    field.type_name = f".{PACKAGE}.{message.name}.{entry.name}"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


_MESSAGES = {
    "Inner": ("string a 1", "int64 b 2", "Inner deeper 3"),
    "WithAny": ("string name 1", "google.protobuf.Any detail 2"),
    "Everything": (
        *("string name 1", "int32 count 2", "int64 big_number 3", "uint32 u 4", "double ratio 5", "float small 6"),
        *("bool flag 7", "bytes blob 8", "Color color 9", "repeated string tags 10", "repeated Color colors 11"),
        *("Inner inner 12", "map<string,string> labels 13", "map<int32,double> weights 14"),
        *("oneof:pick string text 15", "oneof:pick int32 number 16", "oneof:pick Inner nested 17"),
        *("optional int32 maybe 18", "google.protobuf.Duration wait 19", "google.protobuf.Timestamp at 20"),
        *("google.protobuf.FieldMask mask 21", "google.protobuf.StringValue wrapped 22"),
        *("google.protobuf.Struct data 23", "google.protobuf.Value value 24", "repeated Inner inners 25"),
        *("uint64 wide 26", "google.protobuf.Duration timeout 27", "map<bool,Inner> switches 28"),
        *("google.protobuf.Int64Value wrapped_number 29", "google.protobuf.BoolValue wrapped_flag 30"),
        *("optional Inner maybe_inner 31", "repeated float floats 32", "repeated int64 bigs 33"),
    ),
}
_RPCS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("GetThing", "Everything", "Everything", {"get": "/test/v1/{name=things/*}"}),
    ("GetDeep", "Everything", "Everything", {"get": "/test/v1/deep/{inner.a=**}:inspect"}),
    ("GetDeepPlain", "Everything", "Everything", {"get": "/test/v1/deepPlain/{name=**}"}),
    ("Query", "Everything", "Everything", {"get": "/test/v1/query/{count}"}),
    ("PostAll", "Everything", "Everything", {"post": "/test/v1/all/{name}", "body": "*"}),
    ("PostText", "Everything", "Everything", {"post": "/test/v1/text/{text}", "body": "*"}),
    ("PostField", "Everything", "Everything", {"post": "/test/v1/field/{name}", "body": "inner"}),
    ("PostNested", "Everything", "Everything", {"post": "/test/v1/path/{inner.a}", "body": "inner"}),
    ("PutTags", "Everything", "Everything", {"put": "/test/v1/tags", "body": "tags", "response_body": "tags"}),
    ("PatchValue", "Everything", "Everything", {"patch": "/test/v1/value", "body": "value", "response_body": "value"}),
    ("Purge", "Everything", "Everything", {"custom": ("PURGE", "/test/v1/purge")}),
    ("First", "Everything", "Everything", {"get": "/test/v1/twice/{name}"}),
    ("Second", "Everything", "Everything", {"get": "/test/v1/twice/{text}"}),
    ("Watch", "Everything", "Everything", {"get": "/test/v1/watch"}),
    ("Raw", "Everything", "google.api.HttpBody", {"get": "/test/v1/raw"}),
    ("PostAny", "WithAny", "WithAny", {"post": "/test/v1/any", "body": "*"}),
    ("Enumerate", "Everything", "Everything", {"delete": "/test/v1/colors/{color}"}),
    ("NoRule", "Everything", "Everything", {}),
)


def rule(spec: dict[str, Any]) -> http_pb2.HttpRule:
    fields = dict(spec)
    if "custom" in fields:
        kind, path = fields.pop("custom")
        fields["custom"] = http_pb2.CustomHttpPattern(kind=kind, path=path)
    return http_pb2.HttpRule(**fields)


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="tokenwire/gatewaytest/v1/rules.proto", package=PACKAGE, syntax="proto3"
    )
    file.dependency.extend(module.DESCRIPTOR.name for module in _IMPORTS)
    color = file.enum_type.add(name="Color")
    for number, name in enumerate(("COLOR_UNSPECIFIED", "COLOR_RED", "COLOR_BLUE")):
        color.value.add(name=name, number=number)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in sorted(fields, key=lambda spec: spec.startswith("optional")):  # synthetic oneofs come last
            _add(message, field)
    service = file.service.add(name="Rules")
    for name, request, reply, spec in _RPCS:
        full = reply if "." in reply else f"{PACKAGE}.{reply}"
        rpc = service.method.add(name=name, input_type=f".{PACKAGE}.{request}", output_type=f".{full}")
        rpc.server_streaming = name == "Watch"
        if spec:
            rpc.options.Extensions[annotations_pb2.http].CopyFrom(rule(spec))
    return file


def _load() -> ServiceDescriptor:
    pool: Any = descriptor_pool.Default()
    try:
        return pool.FindServiceByName(f"{PACKAGE}.Rules")  # type: ignore[no-any-return]
    except KeyError:
        pool.Add(_file())
        return pool.FindServiceByName(f"{PACKAGE}.Rules")  # type: ignore[no-any-return]


RULES = _load()


def message_class(name: str) -> Any:
    """The class of a message of this contract."""
    return GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(f"{PACKAGE}.{name}"))
