"""The service on a plain grpc.aio server: tests, benchmarks, and one process without Ray."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection

from tokenwire_server import wire
from tokenwire_server.backend import contract_services
from tokenwire_server.service import Service

__all__ = ["GrpcDoor", "plain_server", "server_options"]


class GrpcDoor(wire.RpcMethods):
    """The gRPC methods over a service in this process.

    Args:
        service: What answers.
        model_id: Id that health knows besides the services' names.
        max_message_bytes: Largest request.
    """

    def __init__(self, service: Service, model_id: str, max_message_bytes: int) -> None:
        self.rpc_backend = service
        self.max_message_bytes = max_message_bytes
        self._service = service
        self._model_id = model_id

    async def serving_state(self, name: str) -> bool | None:
        """See `RpcMethods.serving_state`."""
        return self._service.serving if name in ("", *self.health_names()) else None

    def health_names(self) -> Sequence[str]:
        """See `RpcMethods.health_names`."""
        return [*contract_services(), self._model_id]


def server_options(max_message_bytes: int) -> list[tuple[str, int]]:
    """Options of a server that we own.

    Pings: gRPC closes a connection whose client pings more often than every 300 s while it is quiet, which a long
    prefill is; these accept one each 10 s (the name without `recv` is the one that C-core reads).
    """
    return [
        # Above our own limit, so that our status and not the transport's says what is too large.
        ("grpc.max_receive_message_length", max_message_bytes + 4096),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", 16384),
        ("grpc.http2.min_ping_interval_without_data_ms", 10000),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.keepalive_time_ms", 30000),
        ("grpc.keepalive_timeout_ms", 10000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.max_concurrent_streams", 1024),
        ("grpc.so_reuseport", 0),
    ]


@asynccontextmanager
async def plain_server(
    door: wire.RpcMethods, address: str, *, grace_s: float = 5.0
) -> AsyncIterator[tuple[grpc.aio.Server, int]]:
    """Runs the methods with health and reflection; yields server and port. `address`: `host:port`, 0 for any."""
    server = grpc.aio.server(options=server_options(door.max_message_bytes))
    for name in wire.registration_functions():
        getattr(wire, name.rpartition(".")[2])(door, server)
    names = (*contract_services(), health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    port = server.add_insecure_port(address)
    await server.start()
    try:
        yield server, port
    finally:
        await server.stop(grace_s)
