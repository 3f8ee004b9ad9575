"""How many tokens an output carries, chosen by load.

One Python process handles some 25,000 outputs a second, and a GPU may make more tokens than that: an H200 with a model
of 0.6B made 35,000. Then several tokens travel in one output; while the process has time, each travels alone.
"""

from __future__ import annotations

import time

__all__ = ["Pace"]

_COMFORT = 5_000.0
"""Outputs a second that leave the loop time for everything else."""

_MOST = 8
"""Tokens in an output at most: more gains little, and a reader sees them come in bursts."""

_WINDOW_S = 0.1
"""Time over which tokens are counted."""

_CALM_S = 2.0
"""Time with less load after which fewer tokens travel together again."""


class Pace:
    """Counts tokens, and says how many of them an output should carry: a power of two from 1 to 8.

    By what the engine makes in all, so that a slow engine never holds a token back, however many streams it has.
    """

    def __init__(self) -> None:
        self.interval = 1
        """What a new stream's `stream_interval` should be now."""
        self._since = time.monotonic()
        self._tokens = 0
        self._calm_since = self._since

    def count(self, tokens: int, now: float) -> bool:
        """Counts the tokens of one step at a monotonic time, seconds; True where `interval` has changed by it."""
        self._tokens += tokens
        elapsed = now - self._since
        if elapsed < _WINDOW_S:
            return False
        wanted = self._wanted(self._tokens / elapsed)
        self._since, self._tokens = now, 0
        if wanted >= self.interval:
            self._calm_since = now
        # Up at once; down only when it has been calm, so that pauses between bursts change nothing.
        if wanted > self.interval or (wanted < self.interval and now - self._calm_since > _CALM_S):
            self.interval, self._calm_since = wanted, now
            return True
        return False

    def _wanted(self, tokens_per_second: float) -> int:
        interval = 1
        while interval < _MOST and tokens_per_second > _COMFORT * interval:
            interval *= 2
        return interval
