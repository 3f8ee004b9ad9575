"""How far a replica's start is, told through the cluster's key-value store.

Serve's own status has no phases and wraps a failure in a traceback.
"""

from __future__ import annotations

import json
import time
from typing import Any

from ray.experimental import internal_kv

__all__ = ["Progress", "read_progress"]

_PREFIX = b"tokenwire/start/"


class Progress:
    """Tells whoever starts the service how far a replica of a model is."""

    def __init__(self, model_id: str) -> None:
        self._key = _PREFIX + model_id.encode()
        self._began = time.monotonic()

    def phase(self, name: str) -> None:
        """A phase begins."""
        self._put({"phase": name, "seconds": time.monotonic() - self._began})

    def failed(self, cause: str) -> None:
        """The start failed, for a cause of one line."""
        self._put({"phase": "failed", "error": cause, "seconds": time.monotonic() - self._began})

    def _put(self, value: dict[str, Any]) -> None:
        internal_kv._internal_kv_put(self._key, json.dumps(value).encode())


def read_progress(model_id: str) -> dict[str, Any]:
    """The last thing that a replica of the model told: `phase`, `seconds`, and `error` where it failed."""
    value = internal_kv._internal_kv_get(_PREFIX + model_id.encode())
    return dict(json.loads(value)) if value else {}
