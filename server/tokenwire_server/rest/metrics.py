"""`/metrics`: what this process counts, where prometheus_client is installed."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

__all__ = ["metrics_handler"]


def metrics_handler() -> Callable[[Request], Awaitable[Response]] | None:
    """The handler over the process's default registry; None without prometheus_client."""
    try:
        client: Any = importlib.import_module("prometheus_client")
        exposition: Any = importlib.import_module("prometheus_client.exposition")
    except ModuleNotFoundError:
        return None

    async def metrics(request: Request) -> Response:
        encode, content_type = exposition.choose_encoder(request.headers.get("accept", ""))
        return Response(encode(client.REGISTRY), headers={"content-type": content_type})

    return metrics
