"""OpenAI's and Anthropic's REST surfaces and the JSON gateway over any `Backend`.

A translation with no knowledge of the service or the engine.
"""

from __future__ import annotations

from tokenwire_server.rest.app import create_app

__all__ = ["create_app"]
