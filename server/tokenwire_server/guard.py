"""Who may call, how much at once, and until when: the same for gRPC and REST."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from google.protobuf.message import Message

from tokenwire_server.backend import CallContext
from tokenwire_server.errors import StatusError

__all__ = ["Guard", "GuardLimits"]


@dataclass(frozen=True)
class GuardLimits:
    """How much is let in."""

    max_running: int = 256
    """Inference requests in the engine at once."""
    max_queued: int = 1024
    """Inference requests that wait for a place; one more is refused with QUEUE_FULL."""
    max_timeout_s: float = 3600.0
    """Longest time of a call, and what a call without a timeout gets, seconds."""


class Guard:
    """Admission and keys of one replica.

    Args:
        limits: How much is let in.
        key_digests: SHA-256 of each key that may call, hexadecimal; none leaves the door open.
        admin: Whether AdminService answers at all.
    """

    def __init__(self, limits: GuardLimits, key_digests: Iterable[str] = (), *, admin: bool = False) -> None:
        self._limits = limits
        self._keys = [bytes.fromhex(digest) for digest in key_digests]
        self._admin = admin
        self._open = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._draining = False

    @property
    def open_count(self) -> int:
        """Requests that were admitted and have not ended."""
        return self._open

    @property
    def queued_count(self) -> int:
        """Requests that wait for admission."""
        return len(self._waiting)

    def drain(self) -> None:
        """Lets nothing in any more."""
        self._draining = True

    def authorize(self, call: CallContext) -> None:
        """Checks the caller's key in constant time over all keys.

        Raises:
            StatusError: UNAUTHENTICATED.
        """
        if not self._keys or call.identity:  # the Router, or another replica, has seen the key
            return
        given = hashlib.sha256(call.api_key.encode("utf-8", "replace")).digest()
        matches = [hmac.compare_digest(given, key) for key in self._keys]
        if not any(matches):
            hint = "is not valid" if call.api_key else "is missing: send `authorization: Bearer <key>`"
            raise StatusError.of("UNAUTHENTICATED", f"The API key {hint}.")
        call.identity = f"key-{matches.index(True)}"

    def check_admin(self) -> None:
        """Refuses admin RPCs where they are off.

        Raises:
            StatusError: PERMISSION_DENIED.
        """
        if not self._admin:
            raise StatusError.of("PERMISSION_DENIED", "AdminService is off on this server; `admin: true` turns it on.")

    def set_deadline(self, call: CallContext, request: Message) -> None:
        """Sets the call's deadline: the smallest of what the caller, its request and the server allow.

        Raises:
            StatusError: DEADLINE_EXCEEDED when it has passed.
        """
        allowed = self._limits.max_timeout_s
        if "timeout" in request.DESCRIPTOR.fields_by_name and request.HasField("timeout"):
            timeout = request.timeout  # type: ignore[attr-defined]  # checked by name above
            allowed = min(allowed, timeout.seconds + timeout.nanos / 1e9)
        at = call.received_at + allowed
        call.deadline = at if call.deadline is None else min(at, call.deadline)
        if time.monotonic() >= call.deadline:
            raise deadline_exceeded()

    @asynccontextmanager
    async def admit(self, call: CallContext) -> AsyncIterator[None]:
        """Holds one of the places; waits for one in order of arrival.

        Raises:
            StatusError: DRAINING, QUEUE_FULL, or DEADLINE_EXCEEDED while it waits.
        """
        if self._draining:
            raise StatusError.retry_later("DRAINING", "This replica is shutting down; try again.", 0.5)
        if self._open >= self._limits.max_running:
            await self._wait(call)
        else:
            self._open += 1
        try:
            yield
        finally:
            self._leave()

    async def _wait(self, call: CallContext) -> None:
        if len(self._waiting) >= self._limits.max_queued:
            text = f"{self._open} requests run and {len(self._waiting)} wait: the queue is full."
            raise StatusError.retry_later("QUEUE_FULL", text, 1.0)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(call.remaining()):
                await turn
        except (TimeoutError, asyncio.CancelledError) as error:
            if turn.done() and not turn.cancelled():
                self._leave()  # the place came at the same moment; pass it on
            else:
                self._waiting.remove(turn)
            if isinstance(error, TimeoutError):
                raise deadline_exceeded() from None
            raise

    def _leave(self) -> None:
        """Gives the place to who has waited longest, or frees it."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._open -= 1


def deadline_exceeded() -> StatusError:
    """DEADLINE_EXCEEDED."""
    return StatusError.of("DEADLINE_EXCEEDED", "The time allowed for this call has passed.")
