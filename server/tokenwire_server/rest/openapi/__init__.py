"""The OpenAPI 3.1 document of both surfaces; docs/openapi.json is a copy that a test holds to it."""

from __future__ import annotations

from tokenwire_server.rest.openapi.document import build_document

__all__ = ["build_document"]
