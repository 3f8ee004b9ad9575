"""OpenAI's REST surface over any `Backend`: a translation with no knowledge of the service or the engine."""

from __future__ import annotations

from tokenwire_server.rest.app import create_app

__all__ = ["create_app"]
