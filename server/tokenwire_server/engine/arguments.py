"""What `engine_kwargs` may hold, known without importing an engine: vLLM takes seconds, and may be elsewhere."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from tokenwire_server.errors import StartError

__all__ = ["check_engine_kwargs"]

_OURS = Path(__file__).parent

_SERVER_FLAGS = frozenset({"tool_call_parser", "enable_auto_tool_choice"})
"""Flags of vLLM's own server and not of its engine, which are ours too."""


def check_engine_kwargs(llm_engine: str, names: Iterable[str]) -> None:
    """Each name must be an argument of the engine. Where vLLM is not installed, its replicas say what they think.

    Raises:
        StartError: For the first that is not, with the nearest one that is.
    """
    known = _known(llm_engine)
    for name in names if known else ():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            engine = "vLLM" if llm_engine == "vLLM" else f"the {llm_engine} engine"
            raise StartError(f"engine_kwargs.{name} is not an argument of {engine}{hint}")


@cache
def _known(llm_engine: str) -> frozenset[str]:
    if llm_engine == "echo":
        return _parameters(_OURS / "echo.py", "EchoEngine") - {"model_id"}
    vllm = importlib.util.find_spec("vllm")
    if vllm is None or vllm.origin is None:
        return frozenset()
    arguments = Path(vllm.origin).parent / "engine" / "arg_utils.py"
    known = _fields(arguments, "EngineArgs") | _fields(arguments, "AsyncEngineArgs") | _SERVER_FLAGS
    if llm_engine == "scripted":
        known |= _parameters(_OURS / "vllm_scripted.py", "RepeatingEngine") - {"model_id"}
    return frozenset(name for name in known if not name.startswith("_")) - {"model"}


def _class(file: Path, name: str) -> list[ast.stmt]:
    tree = ast.parse(file.read_text())
    return next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def _fields(file: Path, name: str) -> frozenset[str]:
    """Fields of a data class."""
    found = (one.target for one in _class(file, name) if isinstance(one, ast.AnnAssign))
    return frozenset(target.id for target in found if isinstance(target, ast.Name))


def _parameters(file: Path, name: str) -> frozenset[str]:
    """Keyword parameters of a constructor."""
    made = next(one for one in _class(file, name) if isinstance(one, ast.FunctionDef) and one.name == "__init__")
    return frozenset(one.arg for one in made.args.kwonlyargs)
