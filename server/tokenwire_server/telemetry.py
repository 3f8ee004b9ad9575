"""Logs: one line for each call, with its facts and never its texts or keys."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import structlog

from tokenwire_server.errors import StatusError

__all__ = ["CallLog", "configure_logging"]


def configure_logging(*, json: bool, level: str = "INFO") -> None:
    """Sends the standard library's log lines to stderr, as JSON or as text.

    Args:
        json: One JSON object a line, for pods; text otherwise.
        level: Lowest level shown.
    """
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso"),
    ]
    renderer: Any = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=False)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger("tokenwire_server")
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False


class _Call(Protocol):
    """The part of a CallContext that is logged."""

    request_id: str
    identity: str
    received_at: float


class CallLog:
    """Writes one line at the end of each call: method, code, reason, seconds, request id, key name."""

    def __init__(self) -> None:
        self._log = logging.getLogger("tokenwire_server.calls")

    @contextmanager
    def call(self, method: str, call: _Call) -> Iterator[None]:
        """Measures a call. Refusals are logged as info; what the server got wrong is logged where it happened."""
        code, reason = "OK", ""
        try:
            yield
        except StatusError as error:
            code, reason = error.code.name, error.reason
            raise
        except (asyncio.CancelledError, GeneratorExit):
            code = "CANCELLED"
            raise
        except BaseException:
            code, reason = "INTERNAL", "INTERNAL"
            raise
        finally:
            if self._log.isEnabledFor(logging.INFO):
                self._log.info(
                    "call",
                    extra={
                        "method": method,
                        "code": code,
                        "reason": reason,
                        "seconds": round(time.monotonic() - call.received_at, 4),
                        "request_id": call.request_id,
                        "key": call.identity,
                    },
                )
