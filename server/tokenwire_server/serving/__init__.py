"""Ray Serve: the deployments, and how they are built, started and stopped. Ray is imported below this package alone."""

from __future__ import annotations

import os
import sys

from tokenwire_server import serve_env

if "ray.serve" not in sys.modules:
    # Serve reads these when it is imported, which the next lines do; who imported it first has to have set them.
    serve_env.apply(serve_env.ESSENTIAL, os.environ)

from tokenwire_server.serving.build import build_app
from tokenwire_server.serving.cluster import (
    APP_NAME,
    connect,
    deploy,
    doors_open,
    run,
    start_serve,
    start_state,
    stop,
)
from tokenwire_server.serving.server import LLMServer

__all__ = [
    "APP_NAME",
    "LLMServer",
    "build_app",
    "connect",
    "deploy",
    "doors_open",
    "run",
    "start_serve",
    "start_state",
    "stop",
]
