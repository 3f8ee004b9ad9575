"""The gateway over a backend that answers with the request it was given."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from google.api import httpbody_pb2
from tests.rest.gateway.contract import RULES

from tokenwire_server.errors import StatusError
from tokenwire_server.rest.call import RestCall
from tokenwire_server.rest.gateway import Gateway

MAX_BODY_BYTES = 100_000


@dataclass
class Mirror:
    """Answers with the request; what it raises, and after how many messages, can be set."""

    method: str = ""
    request: Any = None
    call: RestCall = field(default_factory=RestCall)
    raises: Exception | None = None
    messages: int = 2
    key: str = ""
    reply_metadata: list[tuple[str, str | bytes]] = field(default_factory=list)
    health: dict[str, bool] = field(default_factory=lambda: {"": True, "down": False})

    def authorize(self, call: Any) -> None:
        if self.key and call.api_key != self.key:
            raise StatusError.of("UNAUTHENTICATED", "The API key is missing.\u00e9")

    async def unary(self, method: str, request: Any, call: Any) -> Any:
        self.method, self.request, self.call = method, request, call
        call.reply_metadata.extend(self.reply_metadata)
        if self.raises is not None:
            raise self.raises
        if method.endswith("/Raw"):
            return httpbody_pb2.HttpBody(content_type="text/csv", data=b"a,b\n")
        return request

    async def stream(self, method: str, request: Any, call: Any) -> AsyncIterator[Any]:
        self.method, self.request, self.call = method, request, call
        call.reply_metadata.extend(self.reply_metadata)  # a channel has it with the first message
        for number in range(self.messages):
            request.count = number
            yield request
        if self.raises is not None:
            raise self.raises

    async def serving(self, name: str) -> bool | None:
        return self.health.get(name)


@pytest.fixture
def mirror() -> Mirror:
    return Mirror()


@pytest.fixture
async def web(mirror: Mirror) -> AsyncIterator[httpx.AsyncClient]:
    app: Any = Gateway(mirror, [RULES], mirror.serving, max_body_bytes=MAX_BODY_BYTES, keep_alive_s=30)
    transport = httpx.ASGITransport(app=app, client=("203.0.113.9", 5))
    async with httpx.AsyncClient(transport=transport, base_url="http://gw.example") as client:
        yield client
