"""Paths of the gateway's routes, with the names that grpc-gateway's own generator gives."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, ServiceDescriptor
from google.rpc import status_pb2

from tokenwire_server.rest.openapi.schemas import SchemaBook
from tokenwire_server.rest.transcoding.routes import Route, routes_of

__all__ = ["native_paths"]

_VARIABLE = re.compile(r"\{([\w.]+)(?:=[^}]*)?\}")


def native_paths(services: Iterable[ServiceDescriptor], book: SchemaBook) -> dict[str, dict[str, Any]]:
    """Path items of every binding of the contract."""
    paths: dict[str, dict[str, Any]] = {}
    seen: dict[str, int] = {}
    for route in routes_of(services):
        seen[route.name] = seen.get(route.name, 0) + 1
        path = _VARIABLE.sub(lambda match: f"{{{match[1]}}}", route.path)
        paths.setdefault(path, {})[route.http_method.lower()] = _operation(route, seen[route.name], book)
    return paths


def _operation(route: Route, number: int, book: SchemaBook) -> dict[str, Any]:
    service = route.rpc.containing_service.name
    suffix = str(number) if number > 1 else ""
    operation: dict[str, Any] = {
        "operationId": f"{service}_{route.rpc.name}{suffix}",
        "tags": [service],
        "summary": f"{route.name.replace('/', ' / ')}",
        "parameters": [*_path_parameters(route, book), *_query_parameters(route, book)],
    }
    if route.body:
        kind = route.rpc.input_type
        schema = book.message(kind) if route.body == "*" else book.field(kind.fields_by_name[route.body])
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    operation["responses"] = {"200": _answer(route, book), "default": _failure(book)}
    return operation


def _answer(route: Route, book: SchemaBook) -> dict[str, Any]:
    kind = route.rpc.output_type
    schema = book.field(kind.fields_by_name[route.response_body]) if route.response_body else book.message(kind)
    if not route.streaming:
        return {"description": "The answer.", "content": {"application/json": {"schema": schema}}}
    status = book.message(status_pb2.Status.DESCRIPTOR)
    envelope = {"type": "object", "properties": {"result": schema, "error": status}}
    words = "A stream: an object a line, or server-sent events where they are accepted or `alt=sse` asks for them."
    content = {"application/json": {"schema": envelope}, "text/event-stream": {"schema": envelope}}
    return {"description": words, "content": content}


def _failure(book: SchemaBook) -> dict[str, Any]:
    schema = book.message(status_pb2.Status.DESCRIPTOR)
    return {"description": "An error, as google.rpc.Status.", "content": {"application/json": {"schema": schema}}}


def _path_parameters(route: Route, book: SchemaBook) -> list[dict[str, Any]]:
    found = []
    for name, _, _ in route.template.variables:
        message: Descriptor | None = route.rpc.input_type
        field: FieldDescriptor | None = None
        for part in name.split("."):
            field = message.fields_by_name[part] if message is not None else None
            message = field.message_type if field is not None else None
        schema = book.field(field) if field is not None else {"type": "string"}
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    return found


def _query_parameters(route: Route, book: SchemaBook) -> list[dict[str, Any]]:
    if route.body == "*":
        return []
    bound = {".".join(path) for path in route.bound}
    found = [
        {"name": field.json_name, "in": "query", "schema": book.field(field)}
        for field in route.rpc.input_type.fields
        if field.name not in bound and field.message_type is None
    ]
    if route.streaming:
        found.append({"name": "alt", "in": "query", "schema": {"type": "string", "enum": ["sse"]}})
    return found
