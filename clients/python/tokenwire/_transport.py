"""Where to connect and how: targets, channel options, service config, metadata."""

from __future__ import annotations

import importlib.metadata
import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import grpc

from tokenwire._retry import FIRST_BACKOFF_S, LAST_BACKOFF_S
from tokenwire._rpcs import SERVICES

MAX_SEND_BYTES = 16 * 1024 * 1024
"""Largest request. The server takes no larger one."""
MAX_RECEIVE_BYTES = 64 * 1024 * 1024
"""Largest response: 2048 embeddings of 4096 floats are 32 MiB."""

_SCHEMES = {"grpc": False, "grpcs": True}

Metadata = tuple[tuple[str, str | bytes], ...]


def version() -> str:
    """The installed version of this package."""
    try:
        return importlib.metadata.version("tokenwire")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"  # the folder was put on the path without being installed


@dataclass(frozen=True)
class Endpoint:
    """An address, and how to reach it. `credentials` is None where the connection is plain."""

    address: str
    loopback: bool
    credentials: grpc.ChannelCredentials | None


def endpoint(target: str, *, secure: bool | None, tls: grpc.ChannelCredentials | None) -> Endpoint:
    """Reads `host:port`, `grpc://host:port` (plain) or `grpcs://host:port` (TLS).

    Raises:
        ValueError: Not one of these, or it is not clear whether to use TLS.
    """
    scheme, separator, rest = target.rpartition("://")
    if separator and scheme not in _SCHEMES:
        raise ValueError(f"target: expected host:port, grpc://host:port or grpcs://host:port, got {target!r}")
    host = _host(target, rest)
    if tls is not None and (secure is False or scheme == "grpc"):
        raise ValueError("tls: credentials were given for a connection that is to be plain")
    if separator:
        if secure is not None and secure is not _SCHEMES[scheme]:
            raise ValueError(f"secure: {secure} contradicts {scheme}://")
        secure = _SCHEMES[scheme]
    if secure is None:
        secure = tls is not None
        if not secure and not _is_loopback(host):
            raise ValueError(
                f"secure: say whether {rest} is reached over TLS: "
                f"secure=True or grpcs://{rest}, secure=False or grpc://{rest}"
            )
    return Endpoint(rest, _is_loopback(host), (tls or grpc.ssl_channel_credentials()) if secure else None)


def _host(target: str, address: str) -> str:
    parts = urlsplit(f"//{address}")
    try:
        port = parts.port
    except ValueError:  # not a number, or above 65535
        port = None
    if not parts.hostname or not port or parts.path or parts.query or parts.username is not None:
        raise ValueError(f"target: expected host:port, got {target!r}")
    return parts.hostname


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def service_config(max_retries: int) -> str:
    """Retries by gRPC itself, for UNAVAILABLE alone: a call that never reached a handler, or was refused by one.

    gRPC stops retrying a stream at its first message, and waits no longer than the call's deadline.
    """
    config: dict[str, object] = {"loadBalancingConfig": [{"round_robin": {}}]}
    if max_retries > 0:
        policy = {
            "maxAttempts": min(5, max_retries + 1),  # gRPC's own ceiling is 5
            "initialBackoff": f"{FIRST_BACKOFF_S}s",
            "maxBackoff": f"{LAST_BACKOFF_S}s",
            "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE"],
        }
        names = [{"service": f"tokenwire.v1.{service}"} for service in SERVICES]
        config["methodConfig"] = [{"name": names, "retryPolicy": policy}]
    return json.dumps(config)


def channel_options(
    place: Endpoint, *, max_retries: int, connections: int, extra: Mapping[str, str | int]
) -> list[tuple[str, str | int]]:
    """The options of a channel; `extra` wins."""
    options: dict[str, str | int] = {
        "grpc.primary_user_agent": f"tokenwire-python/{version()}",
        "grpc.service_config": service_config(max_retries),
        # A name server must not be able to replace the retry policy.
        "grpc.service_config_disable_resolution": 1,
        "grpc.max_send_message_length": MAX_SEND_BYTES,
        "grpc.max_receive_message_length": MAX_RECEIVE_BYTES,
        # A request larger than this buffer would never be retried; the default is 256 KiB.
        "grpc.per_rpc_retry_buffer_size": MAX_SEND_BYTES,
        # Finds a dead peer within 40 s while a call waits. Nothing is sent on an idle connection.
        "grpc.keepalive_time_ms": 30_000,
        "grpc.keepalive_timeout_ms": 10_000,
        # A long prompt or a queue makes a call quiet for minutes; by default gRPC stops pinging after two.
        "grpc.http2.max_pings_without_data": 0,
    }
    if place.loopback:
        # A proxy from the environment cannot reach this machine's loopback.
        options["grpc.enable_http_proxy"] = 0
    if connections > 1:
        # Channels with equal options share one connection unless each has a pool of its own.
        options["grpc.use_local_subchannel_pool"] = 1
    options.update(extra)
    return list(options.items())


def call_metadata(api_key: str | None, extra: Sequence[tuple[str, str]]) -> Metadata:
    """Metadata of every call.

    Raises:
        ValueError: The key is not printable ASCII without spaces, which gRPC would refuse with a less clear error.
    """
    if not api_key:
        return tuple(extra)
    if not all("!" <= character <= "~" for character in api_key):
        raise ValueError("api_key: expected printable ASCII without spaces")
    return (("authorization", f"Bearer {api_key}"), *extra)
