"""Tokenwire's service: what an application file imports.

    from tokenwire_server import LLMConfig, build_app, run

    run(build_app({"llm_configs": [LLMConfig(...)]}))

The names are Ray Serve LLM's where it has the same thing. They are loaded when they are first used, so that importing
this package needs none of the extras.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenwire_server.config import LLMConfig, ServiceConfig
    from tokenwire_server.serving import LLMServer, build_app, run
    from tokenwire_server.serving import build_app as build_openai_app

__all__ = ["LLMConfig", "LLMServer", "ServiceConfig", "__version__", "build_app", "build_openai_app", "run"]

_HOMES = {
    "LLMConfig": ("config", "LLMConfig"),
    "ServiceConfig": ("config", "ServiceConfig"),
    "LLMServer": ("serving", "LLMServer"),
    "build_app": ("serving", "build_app"),
    "build_openai_app": ("serving", "build_app"),
    "run": ("serving", "run"),
}

try:
    __version__ = version("tokenwire")
except PackageNotFoundError:  # imported from a source tree that is not installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(f"{__name__}.{module}"), attribute)
