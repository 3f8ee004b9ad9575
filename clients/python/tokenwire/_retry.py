"""When a failed call is made again.

UNAVAILABLE is not here: gRPC itself retries it, by the channel's service config.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tokenwire.errors import ApiError, CallResetError, ResourceExhaustedError

FIRST_BACKOFF_S = 0.1
LAST_BACKOFF_S = 1.0


class Attempts:
    """The attempts of one call, within one deadline.

    Args:
        max_retries: Attempts after the first, 0 or more.
        timeout: Seconds for all of them together.
        clock: Monotonic seconds.
        jitter: A factor from 0.8 to 1.2, so that callers that failed together do not return together.
    """

    def __init__(
        self,
        max_retries: int,
        timeout: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = lambda: random.uniform(0.8, 1.2),  # noqa: S311 - not for secrets
    ) -> None:
        self._left = max_retries
        self._used = 0
        self._timeout = timeout
        self._clock = clock
        self._jitter = jitter
        self._deadline: float | None = None

    def remaining(self) -> float:
        """Seconds to the deadline, 0 or more. The time starts to run with the first call."""
        now = self._clock()
        if self._deadline is None:
            self._deadline = now + self._timeout
        return max(0.0, self._deadline - now)

    def delay_after(self, error: ApiError) -> float | None:
        """Seconds to wait before the next attempt; None where there is to be none."""
        delay = self._wanted_delay(error)
        if delay is None or self._left == 0 or delay >= self.remaining():
            return None
        self._left -= 1
        self._used += 1
        return delay

    def _wanted_delay(self, error: ApiError) -> float | None:
        if isinstance(error, CallResetError):
            return min(LAST_BACKOFF_S, FIRST_BACKOFF_S * 2.0**self._used) * self._jitter()
        if isinstance(error, ResourceExhaustedError) and error.retry_delay is not None:
            # Never earlier than the server said.
            return error.retry_delay * max(1.0, self._jitter())
        return None
