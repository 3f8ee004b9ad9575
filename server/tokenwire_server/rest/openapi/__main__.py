"""Writes the document: `python -m tokenwire_server.rest.openapi > docs/openapi.json`."""

from __future__ import annotations

import json
import sys

from tokenwire_server import __version__
from tokenwire_server.rest.openapi.document import build_document

if __name__ == "__main__":
    sys.stdout.write(json.dumps(build_document(__version__), indent=1, ensure_ascii=False) + "\n")
