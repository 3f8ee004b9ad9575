"""The variables that Serve reads when it is imported, and must find in every process of the cluster.

Apart from serving.py, since they must be set before the first `import ray.serve` and this module imports no Ray.
"""

from __future__ import annotations

import random
import socket
import sysconfig
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path

from tokenwire_server.errors import StartError

__all__ = ["ESSENTIAL", "HAPROXY", "check_ports", "local_environment", "serve_environment"]

HAPROXY = "RAY_SERVE_HAPROXY_BINARY_PATH"

ESSENTIAL: Mapping[str, str] = {
    # HAProxy in front of the replica's own ports: the only road that keeps cancels and does not cost 90 % of the
    # messages a second (reference: docs/architecture.md).
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    # User code on the replica's main loop, router in it, buffered logs, gRPC between deployments.
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    # A slow reader then slows its own stream and fills no queue.
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    # 100 streams on one connection are the default, and number 101 waits in silence.
    "RAY_SERVE_HAPROXY_H2_FE_MAX_CONCURRENT_STREAMS": "1024",
    "RAY_SERVE_HAPROXY_H2_BE_MAX_CONCURRENT_STREAMS": "1024",
    # The road keeps cancels of REST with this one alone, see haproxy.py.
    HAPROXY: str(Path(sysconfig.get_path("scripts")) / "tokenwire-haproxy"),
}
"""What every node needs; the path is that of the node."""

_BLOCK = 100
"""Ports for the replicas of one service on one machine."""

_AUXILIARY_PORTS = (
    "RAY_SERVE_HAPROXY_STATS_PORT",
    "RAY_SERVE_HAPROXY_METRICS_PORT",
    "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT",
    "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT",
)
"""Ports of HAProxy and Serve besides the two that callers use."""


def serve_environment(longest_call_s: float, max_message_bytes: int) -> dict[str, str]:
    """Variables for a service whose longest stream takes `longest_call_s` seconds."""
    longest = str(int(longest_call_s) + 60)
    return {
        **ESSENTIAL,
        # A reload's old worker is ended after this time, and its streams with it.
        "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": longest,
        "RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S": longest,
        "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S": longest,
        "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(2 * max_message_bytes),
    }


def local_environment(run_dir: Path, taken: Mapping[str, str]) -> dict[str, str]:
    """Variables for a cluster of one machine: its own files, free ports, a short drain.

    Args:
        run_dir: Folder of this run; its path must be short, since socket paths end at 107 characters.
        taken: The environment; a port that is set there stays.
    """
    files = {
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": "h/haproxy.cfg",
        "RAY_SERVE_HAPROXY_SOCKET_PATH": "h/a.sock",
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": "h/m.sock",
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": "h",
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": "h/state",
    }
    free = _free_ports(len(_AUXILIARY_PORTS))
    grpc_block, http_block = _free_blocks(2)
    return {
        **{name: str(run_dir / path) for name, path in files.items()},
        **{name: taken.get(name, str(port)) for name, port in zip(_AUXILIARY_PORTS, free, strict=True)},
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
        # Serve lets two replicas bind the same port; a block for each run keeps two services on a machine apart.
        "RAY_SERVE_DIRECT_INGRESS_MIN_GRPC_PORT": str(grpc_block),
        "RAY_SERVE_DIRECT_INGRESS_MAX_GRPC_PORT": str(grpc_block + _BLOCK),
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(http_block),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(http_block + _BLOCK),
        "VLLM_RPC_BASE_PATH": str(run_dir),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray counts a machine's virtual GPUs away where a task asks for none; the engine looks for itself.
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }


def apply(variables: Mapping[str, str], environment: MutableMapping[str, str]) -> None:
    """Sets variables, leaving alone what somebody has set on purpose."""
    for name, value in variables.items():
        environment.setdefault(name, value)


def check_ports(host: str, ports: Iterable[tuple[int, str]]) -> None:
    """Checks that ports can be bound.

    Args:
        host: Address to bind.
        ports: Each port with what moves it, such as `--grpc-port`.

    Raises:
        StartError: For the first that is taken.
    """
    for port, mover in ports:
        if not 0 < port < 65536:
            raise StartError(f"{port} is no port: give {mover} one from 1 to 65535")
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                raise StartError(f"port {port} is in use; choose another with {mover}") from None


def auxiliary_ports(environment: Mapping[str, str]) -> list[tuple[int, str]]:
    """Ports of HAProxy and Serve besides the two that callers use, each with its variable."""
    return [(int(environment[name]), name) for name in _AUXILIARY_PORTS if environment.get(name, "").isdigit()]


def _free_blocks(count: int) -> list[int]:
    """First ports of blocks in which nothing listens, for replicas."""
    chooser = random.SystemRandom()
    found: list[int] = []
    while len(found) < count:
        # Below Linux's range of ports for outgoing connections, which begins at 32768.
        first = chooser.randrange(12000, 32000, _BLOCK)
        if first not in found and all(_is_free(port) for port in range(first, first + _BLOCK)):
            found.append(first)
    return found


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
