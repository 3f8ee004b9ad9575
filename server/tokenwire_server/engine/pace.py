"""How many tokens an output carries, chosen by load.

One Python process handles some 25,000 outputs a second, and a GPU may make more tokens than that (an H200 with a model
of 0.6B made 40,000). Then several tokens travel in one output; while the process has time, each travels alone.
"""

from __future__ import annotations

__all__ = ["Pace"]

_COMFORT = 10_000.0
"""Outputs a second that leave the loop time for everything else."""

_MOST = 4
"""Tokens in an output at most: more gained nothing."""

_WEIGHT = 0.1
"""Weight of the newest stream in the running average."""


class Pace:
    """Learns how fast streams are, and says how many tokens their outputs should carry."""

    def __init__(self) -> None:
        self._rate = 0.0

    def saw(self, tokens_per_second: float) -> None:
        """A stream has ended, which had so many tokens a second."""
        if tokens_per_second > 0:
            self._rate += (tokens_per_second - self._rate) * (_WEIGHT if self._rate else 1.0)

    def interval(self, running: int) -> int:
        """`stream_interval` for one more stream beside `running` others: a power of two from 1 to 4.

        By what the streams would make together. A slow engine never holds a token back, however many streams it has.
        """
        expected = self._rate * (running + 1)
        interval = 1
        while interval < _MOST and expected > _COMFORT * interval:
            interval *= 2
        return interval
