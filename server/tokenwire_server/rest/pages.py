"""`/docs` and `/playground`: one static file each, which asks nothing of any other host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

__all__ = ["page_handler"]

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-cache",
    "referrer-policy": "no-referrer",
}


def page_handler(name: str) -> Callable[[Request], Awaitable[Response]]:
    """The handler of a page beside this file."""
    content = Path(__file__).with_name(name).read_bytes()

    async def page(_: Request) -> Response:
        return Response(content, media_type="text/html", headers=_HEADERS)

    return page
