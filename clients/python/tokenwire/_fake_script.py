"""What the fake server is told to do, and what it has seen; shared by its threads."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import Message

from tokenwire._fake_answers import Reply


@dataclass(frozen=True)
class SeenCall:
    """A call that the fake server got.

    Attributes:
        method: Its name, such as `StreamChat`.
        request: Its message.
        metadata: Its metadata; of equal keys the last.
    """

    method: str
    request: Message
    metadata: dict[str, str | bytes] = field(repr=False)  # holds the API key


@dataclass(frozen=True)
class Failure:
    """A scripted error; see `FakeServer.fail`."""

    code: grpc.StatusCode
    message: str
    trailers: tuple[tuple[str, str | bytes], ...]
    after: int = 0


class Script:
    """Queues of answers and errors, and the record of calls."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._replies: deque[Reply] = deque()
        self._failures: deque[Failure] = deque()
        self._calls: list[SeenCall] = []
        self._cancelled = 0
        self._awaited = 0
        self._generation = 0

    @property
    def generation(self) -> int:
        """Changes with each `clear`."""
        return self._generation

    def add_reply(self, reply: Reply) -> None:
        """Queues an answer."""
        with self._changed:
            self._replies.append(reply)

    def add_failure(self, failure: Failure, times: int) -> None:
        """Queues an error."""
        with self._changed:
            self._failures.extend([failure] * times)

    def clear(self) -> None:
        """Forgets queues and record."""
        with self._changed:
            self._replies.clear()
            self._failures.clear()
            self._calls.clear()
            self._cancelled = self._awaited = 0
            self._generation += 1

    def seen(self, method: str, request: Message, metadata: Any) -> tuple[int, Failure | None]:
        """Records a call; gives its number from 1, and the error that it is to have."""
        with self._changed:
            self._calls.append(SeenCall(method, request, dict(metadata)))
            self._changed.notify_all()
            return len(self._calls), self._failures.popleft() if self._failures else None

    def next_reply(self, default: str) -> Reply:
        """The next answer; `default` as text where none is queued."""
        with self._changed:
            return self._replies.popleft() if self._replies else Reply((default,))

    def calls(self) -> list[SeenCall]:
        """The calls so far."""
        with self._changed:
            return list(self._calls)

    def wait_calls(self, count: int, timeout: float) -> bool:
        """Waits until so many calls have come."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._calls) >= count, timeout)

    def note_cancelled(self, generation: int) -> None:
        """Records that a call ended before its answer did; one from before `clear` does not count."""
        with self._changed:
            if generation == self._generation:
                self._cancelled += 1
                self._changed.notify_all()

    def wait_cancelled(self, timeout: float) -> bool:
        """Waits for one more cancelled call than the waits before."""
        with self._changed:
            self._awaited += 1
            return self._changed.wait_for(lambda: self._cancelled >= self._awaited, timeout)
