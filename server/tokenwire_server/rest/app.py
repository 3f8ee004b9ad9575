"""The FastAPI application: routes, and what answers a URL or a method that there is not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from tokenwire_server.backend import Backend, contract_services
from tokenwire_server.rest.cors import Cors
from tokenwire_server.rest.edge import Edge
from tokenwire_server.rest.gateway import Gateway, Health
from tokenwire_server.rest.metrics import metrics_handler
from tokenwire_server.rest.openai.errors import OpenAIError
from tokenwire_server.rest.openapi import build_document
from tokenwire_server.rest.pages import page_handler
from tokenwire_server.rest.probes import Probes
from tokenwire_server.rest.routes import OpenAIRoutes
from tokenwire_server.rest.routes_more import AnthropicRoutes, ResponsesRoutes, TokenizeRoutes

__all__ = ["create_app"]

_Handler = Callable[[Request], Awaitable[Response]]


def create_app(
    backend: Backend,
    *,
    version: str,
    max_body_bytes: int = 33_554_432,
    ready: Callable[[], Awaitable[bool]] | None = None,
    keep_alive_s: float = 15.0,
    health: Health | None = None,
    cors_origins: Sequence[str] = (),
) -> FastAPI:
    """Builds the application.

    Args:
        backend: Answers every call. The application owns nothing of it.
        version: What `/version` says.
        max_body_bytes: Largest body, in bytes; a larger one is 413.
        ready: Whether a request would be served now. Default: always, once the application answers.
        keep_alive_s: Seconds without an event after which a stream sends a comment.
        health: What `/healthz` asks of a service or model. Default: `ready`, for each service of the contract.
        cors_origins: Origins whose pages may call; none turns CORS off.
    """
    app = FastAPI(title="Tokenwire", version=version, docs_url=None, redoc_url=None, redirect_slashes=False)
    services = contract_services()
    gateway = Gateway(
        backend,
        services.values(),
        health or _health_of(ready, services),
        max_body_bytes=max_body_bytes,
        keep_alive_s=keep_alive_s,
    )
    app.add_middleware(Edge, backend=backend)
    app.add_middleware(Doors, gateway=gateway)
    if cors_origins:
        app.add_middleware(Cors, origins=cors_origins)
    app.add_exception_handler(HTTPException, _no_such_route)
    probes = Probes(version, ready)
    for path, probe in (
        ("/health", probes.ready),
        ("/readyz", probes.ready),
        ("/livez", probes.live),
        ("/version", probes.version),
    ):
        _get(app, path, probe)
    routes = OpenAIRoutes(backend, max_body_bytes=max_body_bytes, keep_alive_s=keep_alive_s)
    responses = ResponsesRoutes(backend, max_body_bytes=max_body_bytes, keep_alive_s=keep_alive_s)
    messages = AnthropicRoutes(backend, max_body_bytes=max_body_bytes, keep_alive_s=keep_alive_s)
    tokens = TokenizeRoutes(backend, max_body_bytes=max_body_bytes, keep_alive_s=keep_alive_s)
    _get(app, "/v1/models", routes.models)
    _get(app, "/v1/models/{model:path}", routes.model)
    _post(app, "/v1/chat/completions", routes.chat)
    _post(app, "/v1/completions", routes.completions)
    _post(app, "/v1/embeddings", routes.embeddings)
    _post(app, "/v1/responses", responses.create)
    _post(app, "/v1/messages", messages.create)
    _post(app, "/v1/messages/count_tokens", messages.count)
    _post(app, "/tokenize", tokens.tokenize)
    _post(app, "/detokenize", tokens.detokenize)
    _get(app, "/tokenizer_info", tokens.info)
    _get(app, "/docs", page_handler("docs.html"))
    _get(app, "/playground", page_handler("playground.html"))
    metrics = metrics_handler()
    if metrics is not None:
        _get(app, "/metrics", metrics)
    app.openapi_schema = build_document(version)
    return app


class Doors:
    """ASGI middleware: a path of the contract goes to the gateway, every other one to the OpenAI surface.

    Args:
        app: The OpenAI surface.
        gateway: The other door.
    """

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        native = scope["type"] == "http" and self._gateway.owns(scope["path"].removeprefix(scope.get("root_path", "")))
        await (self._gateway if native else self._app)(scope, receive, send)


def _health_of(ready: Callable[[], Awaitable[bool]] | None, services: Iterable[str]) -> Health:
    names = {"", *services}

    async def health(name: str) -> bool | None:
        if name not in names:
            return None
        return ready is None or await ready()

    return health


def _get(app: FastAPI, path: str, handler: _Handler) -> None:
    app.add_api_route(path, handler, methods=["GET", "HEAD"], response_model=None)


def _post(app: FastAPI, path: str, handler: _Handler) -> None:
    app.add_api_route(path, handler, methods=["POST"], response_model=None)


async def _no_such_route(request: Request, error: Exception) -> Response:
    """404 and 405 of the router, in the envelope; OPTIONS says what a URL allows."""
    allowed = _allowed_methods(request)
    if not allowed or (isinstance(error, HTTPException) and error.status_code == 404):
        raise OpenAIError(404, f"Unknown request URL: {request.method} {request.url.path[:256]}", code="unknown_url")
    headers = {"allow": ", ".join(sorted(allowed | {"OPTIONS"}))}
    if request.method == "OPTIONS":
        return Response(status_code=204, headers=headers)
    message = (
        f"Method {request.method[:16]} is not supported for {request.url.path[:256]}. Allowed: {headers['allow']}."
    )
    raise OpenAIError(405, message, code="method_not_supported", headers=headers)


def _allowed_methods(request: Request) -> set[str]:
    allowed: set[str] = set()
    for route in request.app.routes:
        match, _ = route.matches(request.scope)
        if match is not Match.NONE:
            methods: Any = getattr(route, "methods", None)
            allowed |= set(methods or ())
    return allowed
