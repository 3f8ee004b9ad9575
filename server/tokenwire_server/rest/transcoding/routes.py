"""The routes of a contract, read from the `google.api.http` options of its RPCs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from google.api import annotations_pb2, http_pb2
from google.protobuf.descriptor import Descriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import code_pb2, status_pb2

from tokenwire_server.errors import StatusError
from tokenwire_server.rest.transcoding.template import Template, parse_template

__all__ = ["Route", "RouteTable", "make_route", "method_not_allowed", "routes_of"]


def _words(code: int, message: str) -> StatusError:
    """An error in exactly grpc-gateway's words, which has no details."""
    return StatusError(status_pb2.Status(code=code, message=message))


@dataclass(frozen=True)
class Route:
    """One binding of an RPC."""

    rpc: MethodDescriptor
    http_method: str
    path: str
    """The template as the contract has it."""
    template: Template
    body: str
    """`*` for the whole message, a field, or empty where the body is not read."""
    response_body: str
    """The field that is the reply; empty for the whole message."""

    @property
    def name(self) -> str:
        """The RPC's full name, as a backend takes it."""
        return f"{self.rpc.containing_service.full_name}/{self.rpc.name}"

    @property
    def streaming(self) -> bool:
        """Whether the reply is a stream."""
        return bool(self.rpc.server_streaming)

    @cached_property
    def takes_any(self) -> bool:
        """Whether a `google.protobuf.Any` may be somewhere in the request."""
        return "google.protobuf.Any" in _reachable(self.rpc.input_type, set())

    @cached_property
    def bound(self) -> tuple[tuple[str, ...], ...]:
        """Field paths that the query may not touch: the path or the body fills them."""
        paths = [name for name, _, _ in self.template.variables]
        if self.body not in ("", "*"):
            paths.append(self.body)
        return tuple(tuple(path.split(".")) for path in paths)

    def new_request(self) -> Message:
        """An empty request."""
        return GetMessageClass(self.rpc.input_type)()


def _reachable(message: Descriptor, seen: set[str]) -> set[str]:
    if message.full_name not in seen:
        seen.add(message.full_name)
        for field in message.fields:
            if field.message_type is not None:
                _reachable(field.message_type, seen)
    return seen


def routes_of(services: Iterable[ServiceDescriptor]) -> Iterator[Route]:
    """Every binding, in the order of services, RPCs and bindings.

    Raises:
        ValueError: A rule is malformed, or names a field that there is not.
    """
    for service in services:
        for rpc in service.methods:
            options = rpc.GetOptions()
            if options.HasExtension(annotations_pb2.http):
                rule: http_pb2.HttpRule = options.Extensions[annotations_pb2.http]
                for one in (rule, *rule.additional_bindings):
                    yield make_route(rpc, one)


def make_route(rpc: MethodDescriptor, rule: Any) -> Route:
    """The route of one rule.

    Raises:
        ValueError: It is malformed, or names a field that there is not.
    """
    kind = rule.WhichOneof("pattern")
    if kind is None:
        raise ValueError(f"{rpc.full_name} has an HTTP rule without a path")
    method, path = (rule.custom.kind, rule.custom.path) if kind == "custom" else (kind.upper(), getattr(rule, kind))
    template = parse_template(path)
    for name in (*(name for name, _, _ in template.variables), *({rule.body} - {"", "*"})):
        _check_field(rpc.input_type, name, rpc)
    if rule.response_body:
        _check_field(rpc.output_type, rule.response_body, rpc)
    return Route(rpc, method, path, template, rule.body, rule.response_body)


def _check_field(message: Descriptor | None, path: str, rpc: MethodDescriptor) -> None:
    """Finds a mistake in the contract when the table is built, not when the route is called."""
    for part in path.split("."):
        field = message.fields_by_name.get(part) if message is not None else None
        if field is None:
            raise ValueError(f"the HTTP rule of {rpc.full_name} names {path}, which its message does not have")
        message = None if field.is_repeated else field.message_type


def method_not_allowed() -> StatusError:
    """The error of a path that has other methods: 501, as grpc-gateway has it."""
    return _words(code_pb2.UNIMPLEMENTED, "Method Not Allowed")


class RouteTable:
    """Finds the route of a request.

    A path without variables goes ahead of one with them: `**` matches no segment too, and `GET /models` would be
    GetModel of nothing otherwise. Among the others the one that the contract has last wins, as in grpc-gateway.

    Args:
        services: The contract.
    """

    def __init__(self, services: Iterable[ServiceDescriptor]) -> None:
        found = list(routes_of(services))[::-1]
        self.routes = sorted(found, key=lambda route: not route.template.literal)
        self._roots = {route.template.segments[0] for route in found if route.template.segments}

    def owns(self, path: str) -> bool:
        """Whether a path, routed or not, is the gateway's: the contract has one with the same first segment."""
        return path.removeprefix("/").partition("/")[0] in self._roots

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route of a request and its path variables.

        Raises:
            StatusError: NOT_FOUND, UNIMPLEMENTED for another method than the path's, in grpc-gateway's words.
        """
        if not path.startswith("/"):
            raise _words(code_pb2.INVALID_ARGUMENT, "Bad Request")
        parts = path[1:].split("/")
        other = False
        for route in self.routes:
            if parts[-1] == f":{route.template.verb}" and route.http_method == method:
                break  # a verb of nothing: nothing else takes it literally
            values = route.template.match(parts)
            if values is not None and route.http_method == method:
                return route, values
            other = other or values is not None
        if other:
            raise method_not_allowed()
        raise _words(code_pb2.NOT_FOUND, "Not Found")
