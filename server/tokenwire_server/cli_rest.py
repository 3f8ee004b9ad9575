"""`tokenwire rest`: the REST surface alone, over any Tokenwire gRPC address."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import signal
import socket
import sys
from collections.abc import Callable

import grpc
import uvicorn

from tokenwire_server import __version__
from tokenwire_server.errors import StartError
from tokenwire_server.rest import create_app
from tokenwire_server.rest.channel import CHANNEL_OPTIONS, ChannelBackend

__all__ = ["rest"]

PASSTHROUGH = "passthrough"
"""`--api-key` that passes the caller's own key on."""

_DRAIN_S = 30


def rest(args: argparse.Namespace) -> int:
    """Runs until Ctrl-C or SIGTERM; returns the exit code."""
    try:
        listener = _listen(args.host, args.http_port)
    except OSError as error:
        print(f"tokenwire rest: cannot listen on {args.host}:{args.http_port}: {error.strerror}", file=sys.stderr)
        return StartError.EXIT_CODE
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn ends on them in order, and then raises them once more, which would end this process out of order.
        signal.signal(number, lambda *_: None)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(args, listener))
    return 0


async def _serve(args: argparse.Namespace, listener: socket.socket) -> None:
    async with _channel(args.target, tls=args.tls) as channel:
        backend = ChannelBackend(channel, api_key="" if args.api_key == PASSTHROUGH else args.api_key)
        app = create_app(
            backend,
            version=__version__,
            ready=backend.ready,
            health=backend.health,
            cors_origins=args.cors_origin,
        )
        config = uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_DRAIN_S,
        )
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        print(f"REST on http://{shown}:{port}/v1, answered by {args.target}", flush=True)
        await uvicorn.Server(config).serve(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only where the protocol is named; else every reply waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def _channel(target: str, *, tls: bool) -> grpc.aio.Channel:
    if tls:
        return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(), options=CHANNEL_OPTIONS)
    return grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Uvloop's where it is installed: it halves the time of a small request."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ModuleNotFoundError:
        return None
    return factory
