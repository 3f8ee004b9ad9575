"""gRPC without generated servicers: raw bytes in, ready bytes out, and one error boundary for every RPC.

Serve and the plain server register the same functions. The generated ones parse a request before our code runs and
answer a corrupt one with UNKNOWN and a foreign exception's text; here the handler gets the bytes, so size, parsing and
every failure have one owner. Handlers use only what both Serve's context and grpc.aio's offer (set_code, set_details,
set_trailing_metadata, invocation_metadata, peer) and return normally after an error: Serve drops the trailers of one
that raises.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Protocol, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2

from tokenwire_server.backend import Backend, CallContext, contract_services, new_request_id, sane_request_id
from tokenwire_server.errors import StatusError

__all__ = [
    "Ready",
    "RpcMethods",
    "add_AdminServiceServicer_to_server",
    "add_ChatServiceServicer_to_server",
    "add_EmbeddingServiceServicer_to_server",
    "add_GenerationServiceServicer_to_server",
    "add_HealthServicer_to_server",
    "add_ModelServiceServicer_to_server",
    "add_TokenizationServiceServicer_to_server",
    "registration_functions",
]

_log = logging.getLogger(__name__)

_RETRY_PUSHBACK = "grpc-retry-pushback-ms"


class ServerContext(Protocol):
    """What a handler may use of a gRPC context: the part that Serve's and grpc.aio's share."""

    def set_code(self, code: grpc.StatusCode) -> None:
        """Status of the call."""

    def set_details(self, details: str) -> None:
        """Message of the status."""

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """Trailers."""

    def invocation_metadata(self) -> Any:
        """Metadata from the client."""


class Ready:
    """Response bytes that are ready: Serve calls `SerializeToString` on whatever a handler gives it."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def SerializeToString(self) -> bytes:
        """The bytes."""
        return self.data


_NOTHING = Ready(b"")
"""Answer of a unary handler that failed: the status goes in the trailers, the message is not read."""


def _serialize(response: Any) -> bytes:
    return cast(bytes, response.SerializeToString())


def _call_context(context: ServerContext, size: int) -> CallContext:
    """Reads what we know of a call from its metadata. Values that are not sane are passed over."""
    metadata: dict[str, str] = {}
    for key, value in context.invocation_metadata() or ():
        if isinstance(value, str):
            metadata.setdefault(key, value)
    scheme, _, token = metadata.get("authorization", "").partition(" ")
    return CallContext(
        request_id=sane_request_id(metadata.get("x-request-id")) or new_request_id(),
        api_key=token.strip() if scheme.lower() == "bearer" else "",
        request_size=size,
        traceparent=metadata.get("traceparent", ""),
    )


def _parse(method: MethodDescriptor, data: bytes) -> Message:
    message = GetMessageClass(method.input_type)()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise StatusError.field("", f"the request is not a valid {method.input_type.full_name} message") from None
    return message


def _fail(context: ServerContext, error: StatusError, call: CallContext) -> None:
    """Puts an error on the context: code, message, and the whole Status in the trailers."""
    trailers: list[tuple[str, str | bytes]] = [
        ("grpc-status-details-bin", error.status.SerializeToString()),
        ("x-request-id", call.request_id),
    ]
    delay = error.retry_delay_s
    if delay is not None:
        trailers.append((_RETRY_PUSHBACK, str(int(delay * 1000))))
    context.set_code(error.code)
    context.set_details(error.status.message)
    context.set_trailing_metadata(trailers)  # a list: Serve appends one of its own


def _boundary_error(error: Exception, call: CallContext, method: str) -> StatusError:
    """What the caller sees of an exception: itself if it is a StatusError, else INTERNAL and the rest in the log."""
    if isinstance(error, StatusError):
        return error
    _log.error("%s failed, request %s", method, call.request_id, exc_info=error)
    return StatusError.internal(call.request_id)


def _unary_handler(name: str, method: MethodDescriptor) -> Callable[..., Awaitable[Any]]:
    async def handler(self: RpcMethods, request: bytes, grpc_context: ServerContext) -> Any:
        call = _call_context(grpc_context, len(request))
        try:
            self.check_size(len(request))
            response = await self.rpc_backend.unary(name, _parse(method, request), call)
        # The error boundary: whatever it is, the caller gets a status and the log the rest.
        except Exception as error:  # noqa: BLE001
            _fail(grpc_context, _boundary_error(error, call, name), call)
            return _NOTHING
        grpc_context.set_trailing_metadata([("x-request-id", call.request_id)])
        return response

    return handler


def _stream_handler(name: str, method: MethodDescriptor) -> Callable[..., AsyncIterator[Any]]:
    async def handler(self: RpcMethods, request: bytes, grpc_context: ServerContext) -> AsyncIterator[Any]:
        call = _call_context(grpc_context, len(request))
        try:
            self.check_size(len(request))
            # Closing aborts the engine request whether the cancel arrives here or as GeneratorExit at the yield.
            async with aclosing(cast(Any, self.rpc_backend.stream(name, _parse(method, request), call))) as events:
                async for event in events:
                    yield event
        # The error boundary, as above. A cancel is no Exception and passes through.
        except Exception as error:  # noqa: BLE001
            _fail(grpc_context, _boundary_error(error, call, name), call)
            return
        grpc_context.set_trailing_metadata([("x-request-id", call.request_id)])

    return handler


class RpcMethods:
    """Base of whatever answers gRPC: one method for each RPC of the contract, by its bare name, over a Backend.

    Serve dispatches on the last path segment alone, which is why RPC names are unique across services.
    """

    rpc_backend: Backend
    max_message_bytes: int

    def check_size(self, size: int) -> None:
        """Refuses a request that is too large.

        Raises:
            StatusError: REQUEST_TOO_LARGE.
        """
        if size > self.max_message_bytes:
            raise StatusError.of(
                "REQUEST_TOO_LARGE",
                f"The request is {size} bytes; the limit is {self.max_message_bytes}.",
                metadata={"limit": str(self.max_message_bytes)},
            )

    async def Check(self, request: bytes, grpc_context: ServerContext) -> Any:
        """grpc.health.v1: SERVING, NOT_SERVING, or NOT_FOUND for a service that is not known. Needs no key."""
        call = _call_context(grpc_context, len(request))
        question = health_pb2.HealthCheckRequest()
        try:
            question.ParseFromString(request)
        except DecodeError:
            _fail(grpc_context, StatusError.field("", "the request is not a valid HealthCheckRequest"), call)
            return _NOTHING
        serving = await self.serving_state(question.service)
        if serving is None:
            known = StatusError.not_found("MODEL_NOT_FOUND", "service", question.service, self.health_names())
            _fail(grpc_context, known, call)
            return _NOTHING
        states = health_pb2.HealthCheckResponse
        return states(status=states.SERVING if serving else states.NOT_SERVING)

    async def Watch(self, request: bytes, grpc_context: ServerContext) -> AsyncIterator[Any]:
        """grpc.health.v1 Watch: UNIMPLEMENTED, since an open Watch would hold up drain and scale-down."""
        call = _call_context(grpc_context, len(request))
        _fail(grpc_context, StatusError.unsupported("Watch", "poll Check instead: it is cheap"), call)
        return
        yield  # makes this a generator

    async def serving_state(self, name: str) -> bool | None:
        """Whether `name` serves: "" all of it, else a service or a model id; None if it is not known."""
        raise NotImplementedError

    def health_names(self) -> Sequence[str]:
        """Names that `serving_state` knows."""
        raise NotImplementedError


def _install() -> None:
    for full_name, service in contract_services().items():
        for method in service.methods:
            make = _stream_handler if method.server_streaming else _unary_handler
            handler = make(f"{full_name}/{method.name}", method)
            handler.__name__ = method.name
            handler.__qualname__ = f"RpcMethods.{method.name}"
            setattr(RpcMethods, method.name, handler)


_install()


def _add(service: ServiceDescriptor, servicer: Any, server: Any) -> None:
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
    for method in service.methods:
        make: Any = (
            grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        )
        # Serve registers with a stand-in that has no methods, and puts its own handlers in their place.
        behaviour = getattr(servicer, method.name, None)
        handlers[method.name] = make(behaviour, request_deserializer=None, response_serializer=_serialize)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))


def _adder(service: ServiceDescriptor) -> Callable[[Any, Any], None]:
    def add(servicer: Any, server: Any) -> None:
        _add(service, servicer, server)

    add.__name__ = f"add_{service.name}Servicer_to_server"
    add.__doc__ = f"Registers {service.full_name} on a server, handlers taking bytes."
    return add


# Serve imports these by name in every proxy and replica, so each is an attribute of this module.
_services = contract_services()
add_AdminServiceServicer_to_server = _adder(_services["tokenwire.admin.v1.AdminService"])
add_ChatServiceServicer_to_server = _adder(_services["tokenwire.v1.ChatService"])
add_EmbeddingServiceServicer_to_server = _adder(_services["tokenwire.v1.EmbeddingService"])
add_GenerationServiceServicer_to_server = _adder(_services["tokenwire.v1.GenerationService"])
add_ModelServiceServicer_to_server = _adder(_services["tokenwire.v1.ModelService"])
add_TokenizationServiceServicer_to_server = _adder(_services["tokenwire.v1.TokenizationService"])
add_HealthServicer_to_server = _adder(cast(ServiceDescriptor, health_pb2.DESCRIPTOR.services_by_name["Health"]))


def registration_functions() -> list[str]:
    """Import paths of the functions above, as Serve's `grpc_servicer_functions` takes them."""
    return [f"{__name__}.{name}" for name in __all__ if name.startswith("add_")]
