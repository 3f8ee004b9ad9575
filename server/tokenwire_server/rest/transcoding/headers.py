"""HTTP headers -> gRPC metadata and back, by grpc-gateway's rules."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from types import MappingProxyType

from tokenwire_server.rest.transcoding.decode import bad_request

__all__ = ["Metadata", "grpc_timeout_s", "reply_headers", "request_metadata"]

Metadata = list[tuple[str, str | bytes]]
"""Pairs; a key that ends in `-bin` has bytes."""

_PERMANENT = frozenset(
    {
        *("accept", "accept-charset", "accept-language", "accept-ranges", "authorization", "cache-control"),
        *("content-type", "cookie", "date", "expect", "from", "host", "if-match", "if-modified-since"),
        *("if-none-match", "if-schedule-tag-match", "if-unmodified-since", "max-forwards", "origin", "pragma"),
        *("referer", "user-agent", "via", "warning"),
    }
)
"""IANA's permanent headers, as grpc-gateway lists them."""

_OURS = frozenset({"traceparent", "tracestate", "x-request-id"})
"""Passed on under their own names: our extension."""

_PREFIX = "grpc-metadata-"
_KEY = re.compile(r"[0-9a-z_.-]+")
_TEXT = re.compile(r"[\x20-\x7e]*")
_UNIT_S = MappingProxyType({"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9})
_LONGEST_S = 31_536_000.0


def request_metadata(headers: Iterable[tuple[str, str]], client: str = "") -> Metadata:
    """The metadata of a request's headers; what is not named by the rules is dropped.

    Args:
        headers: Names in lower case.
        client: The caller's address, for `x-forwarded-for`.

    Raises:
        StatusError: INVALID_ARGUMENT, a `-bin` header is not base64.
    """
    found: Metadata = []
    forwarded: list[str] = []
    host = forwarded_host = ""
    for name, value in headers:
        if name == "x-forwarded-for":
            forwarded.append(value)
            continue
        if name == "x-forwarded-host":
            forwarded_host = forwarded_host or value
            continue
        if name == "host":
            host = host or value
        if name == "authorization":
            found.append((name, value))
        key = _metadata_key(name)
        if key is None or not _KEY.fullmatch(key):
            continue
        if key.endswith("-bin"):
            found.append((key, _decoded(name, value)))
        elif _TEXT.fullmatch(value):
            found.append((key, value))
    if forwarded_host or host:
        found.append(("x-forwarded-host", forwarded_host or host))
    if client:
        forwarded.append(client)
    if forwarded:
        found.append(("x-forwarded-for", ", ".join(forwarded)))
    return found


def _metadata_key(name: str) -> str | None:
    if name in _PERMANENT:
        return f"grpcgateway-{name}"
    if name.startswith(_PREFIX):
        return name.removeprefix(_PREFIX)
    return name if name in _OURS else None


def _decoded(name: str, value: str) -> bytes:
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad_request(f"invalid binary header {name[:64]}: it is not base64") from error


def grpc_timeout_s(value: str) -> float | None:
    """Seconds of a `Grpc-Timeout` such as `500m`; None for one of 0, which sets none.

    Raises:
        StatusError: INVALID_ARGUMENT.
    """
    number, unit = value[:-1], value[-1:]
    if unit not in _UNIT_S or not re.fullmatch(r"[+-]?[0-9]{1,18}", number):
        raise bad_request(f'invalid grpc-timeout: "{value[:32]}"')
    seconds = int(number) * _UNIT_S[unit]
    return min(seconds, _LONGEST_S) or None


def reply_headers(metadata: Iterable[tuple[str, str | bytes]]) -> list[tuple[bytes, bytes]]:
    """Initial metadata of a reply as `grpc-metadata-` headers."""
    return [
        (f"{_PREFIX}{key}".encode(), base64.b64encode(value) if isinstance(value, bytes) else value.encode("latin-1"))
        for key, value in metadata
    ]
