"""The seam between doors and service: what a gRPC handler, the REST shim and the Router all talk to."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from tokenwire.admin.v1 import admin_pb2
from tokenwire.v1 import chat_pb2, embedding_pb2, generation_pb2, model_pb2, tokenization_pb2

__all__ = ["Backend", "CallContext", "contract_services", "new_request_id", "sane_request_id"]

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


def new_request_id() -> str:
    """A request id of our own: `req_` and 24 hexadecimal digits."""
    return f"req_{secrets.token_hex(12)}"


def sane_request_id(value: str | None) -> str | None:
    """`value` where it may serve as a request id (1 to 128 of `[A-Za-z0-9._-]`), else None."""
    return value if value and _REQUEST_ID.fullmatch(value) else None


@dataclass(slots=True)
class CallContext:
    """Facts of one call that are not in its request message."""

    request_id: str = field(default_factory=new_request_id)
    """Correlation id, in every log line, error and response. Never used as an engine id."""
    api_key: str = ""
    """Bearer token as the caller sent it, without the word Bearer."""
    identity: str = ""
    """Name of the key, once `Backend.authorize` has seen it. Never the key itself."""
    received_at: float = field(default_factory=time.monotonic)
    """Monotonic time of receipt, seconds."""
    deadline: float | None = None
    """Monotonic time at which the call ends, seconds; None is the server's maximum."""
    request_size: int = 0
    """Bytes of the request as it came."""
    traceparent: str = ""
    """W3C trace context, passed on as it came."""

    def remaining(self) -> float | None:
        """Seconds left, never below 0; None without a deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


class Backend(Protocol):
    """Whoever can answer the contract: the service in this process, a deployment handle, or a channel.

    `method` is a full RPC name, such as `tokenwire.v1.ChatService/StreamChat`. Errors are `StatusError`, raised before
    the first message wherever the request is at fault. Whoever stops reading a stream closes it (`aclosing`), which
    aborts the request in the engine; cancelling the task that awaits does the same.
    """

    def authorize(self, call: CallContext) -> None:
        """Checks the key and fills in `call.identity`.

        Raises:
            StatusError: UNAUTHENTICATED.
        """

    async def unary(self, method: str, request: Message, call: CallContext) -> Message:
        """Answers a unary RPC."""

    def stream(self, method: str, request: Message, call: CallContext) -> AsyncIterator[Message]:
        """Answers a server-streaming RPC with an async generator."""


def contract_services() -> dict[str, ServiceDescriptor]:
    """Every service of the contract by full name, `tokenwire.admin.v1.AdminService` among them."""
    modules = (chat_pb2, embedding_pb2, generation_pb2, model_pb2, tokenization_pb2, admin_pb2)
    return {service.full_name: service for module in modules for service in module.DESCRIPTOR.services_by_name.values()}
