"""The context of a call that came over HTTP: what a channel passes on and brings back besides `CallContext`."""

from __future__ import annotations

from dataclasses import dataclass, field

from tokenwire_server.backend import CallContext
from tokenwire_server.rest.transcoding.headers import Metadata

__all__ = ["RestCall"]


@dataclass(slots=True)
class RestCall(CallContext):
    """Facts of one HTTP request."""

    metadata: Metadata = field(default_factory=list)
    """Metadata for the other side, as the request's headers ask; only a channel has another side."""
    reply_metadata: Metadata = field(default_factory=list)
    """Initial metadata that came back."""
