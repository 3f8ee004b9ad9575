"""Whole services on clusters of their own, one at a time, as a user starts them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.engine.conftest import free_port

BIN = Path(sys.executable).parent


@dataclass
class Cluster:
    """A running `tokenwire serve`."""

    grpc_port: int
    http_port: int
    pid: int
    lines: list[str]

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def processes(self, name: str) -> list[psutil.Process]:
        """Processes of the service whose title holds `name`."""
        below = psutil.Process(self.pid).children(recursive=True)
        return [process for process in below if name in " ".join(process.cmdline())]


@contextmanager
def serving(config: str, folder: Path, *flags: str) -> Iterator[Cluster]:
    """Serves a configuration; asserts at the end that it stops with 0 and leaves nothing."""
    path = folder / "config.yaml"
    path.write_text(config)
    ports = free_port(), free_port()
    command = [BIN / "tokenwire", "serve", path, "--grpc-port", str(ports[0]), "--http-port", str(ports[1]), *flags]
    with (folder / "stderr.log").open("w") as errors:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert server.stdout is not None
    lines = []
    for line in server.stdout:
        lines.append(line)
        if line.startswith("ready in"):
            break
    else:
        pytest.fail("".join(lines) + (folder / "stderr.log").read_text()[-3000:])
    try:
        yield Cluster(*ports, server.pid, lines)
    finally:
        mine = psutil.Process(server.pid).children(recursive=True)
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=120)
        server.stdout.close()
    left = [process.name() for process in mine if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    assert code == 0, (folder / "stderr.log").read_text()[-3000:]
    assert not left
