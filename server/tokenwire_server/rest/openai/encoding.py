"""JSON as it goes on the wire."""

from __future__ import annotations

from typing import Any

import orjson

__all__ = ["dumps"]


def dumps(value: Any) -> bytes:
    """JSON in UTF-8 with U+2028, U+2029 and U+0085 escaped: clients that split lines the Unicode way break on them."""
    data = orjson.dumps(value)
    if data.isascii():
        return data
    # Replacing bytes is safe: UTF-8 is self-synchronising, and none of the three can occur outside a JSON string.
    return (
        data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029").replace(b"\xc2\x85", b"\\u0085")
    )
