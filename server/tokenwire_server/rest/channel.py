"""ChannelBackend: the shim over any Tokenwire address, as grpc-gateway would be."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2

from tokenwire_server.backend import CallContext, contract_services
from tokenwire_server.errors import StatusError
from tokenwire_server.rest.call import RestCall
from tokenwire_server.rest.channel_status import lost_replica, status_of

__all__ = ["CHANNEL_OPTIONS", "ChannelBackend"]

CHANNEL_OPTIONS: Sequence[tuple[str, Any]] = (
    # What is too large is the server's to say, in its own words.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_metadata_size", 16384),
    ("grpc.keepalive_time_ms", 30000),
    ("grpc.keepalive_timeout_ms", 10000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.lb_policy_name", "round_robin"),
)

_HEALTH = "/grpc.health.v1.Health/Check"
_HEALTH_TIMEOUT_S = 5.0
_OWN = frozenset({"authorization", "x-request-id", "traceparent", "content-type", "te", "user-agent", "host"})
"""Metadata that is written from the call, or is the transport's."""
_PRINTABLE = re.compile(r"[\x20-\x7e]+")


class ChannelBackend:
    """A Backend over a channel. Keys are the other side's to check.

    A replica that dies resets its calls: CANCELLED without our ErrorInfo, which nobody here asked for. Before the first
    message such a call is tried once more, then it is NO_REPLICA.

    Args:
        channel: Open for as long as this is used; not closed here.
        api_key: Sent in place of the caller's; empty passes the caller's on.
    """

    def __init__(self, channel: grpc.aio.Channel, *, api_key: str = "") -> None:
        self._api_key = api_key
        self._methods: dict[str, Any] = {}
        for name, service in contract_services().items():
            for method in service.methods:
                make: Any = channel.unary_stream if method.server_streaming else channel.unary_unary
                self._methods[f"{name}/{method.name}"] = make(
                    f"/{name}/{method.name}",
                    request_serializer=_serialize,
                    response_deserializer=GetMessageClass(method.output_type).FromString,
                )
        self._health: Any = channel.unary_unary(
            _HEALTH,
            request_serializer=_serialize,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )

    def authorize(self, call: CallContext) -> None:
        """See `Backend.authorize`: the other side decides."""

    async def unary(self, method: str, request: Message, call: CallContext) -> Message:
        """See `Backend.unary`."""
        for last in (False, True):
            running = self._start(method, request, call)
            try:
                response: Message = await running
            except grpc.aio.AioRpcError as error:
                if last or not lost_replica(error):
                    raise status_of(error, call.request_id) from error
            else:
                await _keep_metadata(running, call)
                return response
        raise AssertionError("the second attempt answers or raises")

    async def stream(self, method: str, request: Message, call: CallContext) -> AsyncGenerator[Message, None]:
        """See `Backend.stream`. Closing cancels the call on the other side."""
        begun = False
        for last in (False, True):
            running = self._start(method, request, call)
            try:
                async for message in running:
                    if not begun:
                        begun = True
                        await _keep_metadata(running, call)
                    yield message
            except grpc.aio.AioRpcError as error:
                if last or begun or not lost_replica(error):
                    raise status_of(error, call.request_id) from error
            else:
                return
            finally:
                running.cancel()

    def _start(self, method: str, request: Message, call: CallContext) -> Any:
        start = self._methods.get(method)
        if start is None:
            raise StatusError.unsupported(method.rpartition("/")[2], "is not in this contract")
        return start(request, timeout=call.remaining(), metadata=self._metadata(call))

    def _metadata(self, call: CallContext) -> tuple[tuple[str, str | bytes], ...]:
        pairs: list[tuple[str, str | bytes]] = [("x-request-id", call.request_id)]
        key = self._api_key or call.api_key
        # A value that gRPC would not send fails the call with another's words: it is left out.
        if _PRINTABLE.fullmatch(key):
            pairs.append(("authorization", f"Bearer {key}"))
        if _PRINTABLE.fullmatch(call.traceparent):
            pairs.append(("traceparent", call.traceparent))
        if isinstance(call, RestCall):
            pairs += [pair for pair in call.metadata if pair[0] not in _OWN and not pair[0].startswith("grpc-")]
        return tuple(pairs)

    async def health(self, name: str) -> bool | None:
        """Whether the other side serves a service or model, "" for all; None where it does not know the name."""
        try:
            answer = await self._health(health_pb2.HealthCheckRequest(service=name), timeout=_HEALTH_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            return None if error.code() is grpc.StatusCode.NOT_FOUND else False
        serving: bool = answer.status == health_pb2.HealthCheckResponse.SERVING
        return serving

    async def ready(self) -> bool:
        """Whether the other side serves."""
        return bool(await self.health(""))


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


async def _keep_metadata(running: Any, call: CallContext) -> None:
    if isinstance(call, RestCall):
        call.reply_metadata[:] = list(await running.initial_metadata())
