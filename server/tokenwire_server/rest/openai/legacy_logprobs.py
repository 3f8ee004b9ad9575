"""`logprobs` of completions: four parallel lists, with the place of each token in the text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tokenwire.v1 import output_pb2
from tokenwire_server.rest.openai.replies import floor

__all__ = ["LegacyLogprobs"]


class LegacyLogprobs:
    """Writes the lists of one choice, piece by piece where it streams.

    Args:
        offset: Place of the first token in the text, in characters.
    """

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def take(self, tokens: Iterable[output_pb2.TokenLogprob]) -> dict[str, list[Any]]:
        """The lists of the next tokens."""
        lists: dict[str, list[Any]] = {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
        for one in tokens:
            known = one.HasField("logprob")
            lists["text_offset"].append(self._offset)
            lists["tokens"].append(_name(one))
            lists["token_logprobs"].append(floor(one.logprob) if known else None)
            lists["top_logprobs"].append(_top(one) if known else None)
            self._offset += _characters(one.token_bytes)
        return lists


def _top(one: output_pb2.TokenLogprob) -> dict[str, float]:
    # The chosen token is among them, as OpenAI has it, be it one of the most likely or not.
    likely = {_name(top): floor(top.logprob) for top in one.top}
    likely.setdefault(_name(one), floor(one.logprob))
    return likely


def _name(one: output_pb2.TokenLogprob | output_pb2.TopLogprob) -> str:
    """The token's text, or OpenAI's `bytes:` form for a part of a code point: keys must not collide on U+FFFD."""
    if "\ufffd" not in one.token:
        return one.token
    return "bytes:" + "".join(f"\\x{byte:02x}" for byte in one.token_bytes)


def _characters(data: bytes) -> int:
    """Code points that begin in `data`: one cut over two tokens counts with its first."""
    return len(data) if data.isascii() else sum((byte & 0xC0) != 0x80 for byte in data)
