"""An ASGI application behind a real HTTP server, in this process."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn


@asynccontextmanager
async def http_server(app: Any) -> AsyncIterator[int]:
    """Yields the port of 127.0.0.1."""
    config = uvicorn.Config(app, lifespan="off", ws="none", log_level="critical")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    # asyncio turns Nagle's algorithm off only where the protocol is named; else every reply waits 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    await server.startup(sockets=[listener])
    yield listener.getsockname()[1]
    await server.shutdown(sockets=[listener])
