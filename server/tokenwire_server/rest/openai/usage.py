"""What stands after `choices` in each chunk of a stream: nothing, `"usage":null`, or usage so far."""

from __future__ import annotations

from collections.abc import Sized

from tokenwire.v1 import output_pb2
from tokenwire_server.rest.openai.encoding import dumps
from tokenwire_server.rest.openai.options import StreamOptions
from tokenwire_server.rest.openai.replies import usage_dict

__all__ = ["UsageTail"]


class UsageTail:
    """Counts a stream, over all of its prompts.

    Args:
        options: What the request asked.
    """

    def __init__(self, options: StreamOptions | None) -> None:
        self._wanted = options is not None and options.usage
        self.continuous = options is not None and options.continuous_usage
        """Whether each chunk carries a count."""
        self.tail = b',"usage":null}\n\n' if self._wanted else b"}\n\n"
        """Ends a frame."""
        self._now = output_pb2.Usage()
        self.total = output_pb2.Usage()
        """Sum of what has ended."""

    def start(self, start: output_pb2.StreamStart) -> None:
        """Counts a prompt."""
        self._now.prompt_token_count += start.prompt_token_count
        self._now.cached_token_count += start.cached_token_count
        self._refresh()

    def count(self, token_ids: Sized) -> None:
        """Counts new tokens."""
        self._now.output_token_count += len(token_ids)
        self._refresh()

    def _refresh(self) -> None:
        if self.continuous:
            self.tail = b',"usage":' + dumps(usage_dict(self._now)) + b"}\n\n"

    def add(self, usage: output_pb2.Usage) -> None:
        """Adds the final count of one prompt."""
        total = self.total
        total.prompt_token_count += usage.prompt_token_count
        total.output_token_count += usage.output_token_count
        total.cached_token_count += usage.cached_token_count
        total.reasoning_token_count += usage.reasoning_token_count

    def last(self, head: bytes, usage: output_pb2.Usage | None = None) -> bytes:
        """The usage chunk, where it was asked for; `head` goes up to the opening bracket of `choices`."""
        if usage is not None:
            self.add(usage)
        if not self._wanted:
            return b""
        return head + b'],"usage":' + dumps(usage_dict(self.total)) + b"}\n\n"
