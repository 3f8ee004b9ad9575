"""What the package shows, and what it needs."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tokenwire
from tokenwire import errors, testing

PACKAGE = Path(tokenwire.__file__).parent


def public_names(module) -> set[str]:
    submodules = {"testing", "v1", "admin"}  # reached by their own imports
    return {name for name in vars(module) if not name.startswith("_")} - {"annotations"} - submodules


def test_the_public_names_are_listed_and_sorted():
    assert public_names(tokenwire) | {"__version__"} == set(tokenwire.__all__)
    for module in (tokenwire, errors, testing):
        assert module.__all__ == sorted(module.__all__)
        assert all(hasattr(module, name) for name in module.__all__)


def test_every_error_is_drawn_and_exported():
    classes = {
        name for name, item in vars(errors).items() if inspect.isclass(item) and issubclass(item, errors.TokenwireError)
    }
    assert classes == set(errors.__all__)
    assert classes <= set(tokenwire.__all__)
    drawn = re.findall(r"^[ |`-]*(\w+Error)\b", errors.__doc__, re.MULTILINE)
    assert set(drawn) == classes
    assert len(drawn) == len(classes)


def test_both_clients_have_the_same_methods():
    def methods(kind: type) -> dict[str, list[str]]:
        found = inspect.getmembers(kind, inspect.isfunction)
        return {name: list(inspect.signature(item).parameters) for name, item in found if not name.startswith("_")}

    assert methods(tokenwire.Client) == methods(tokenwire.AsyncClient)
    init = [list(inspect.signature(kind).parameters) for kind in (tokenwire.Client, tokenwire.AsyncClient)]
    assert init[0] == init[1]


@pytest.mark.parametrize("module", ["tokenwire", "tokenwire.testing"])
def test_importing_it_needs_only_grpc_and_protobuf(module):
    code = f"import sys, {module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    found = set(run.stdout.split())
    assert {"grpc", "google", "tokenwire"} <= found
    unwanted = {"pydantic", "fastapi", "starlette", "ray", "vllm", "torch", "rich", "structlog", "tokenwire_server"}
    assert not found & unwanted


def test_modules_import_only_the_contract_grpc_and_the_standard_library():
    allowed = set(sys.stdlib_module_names) | {"grpc", "google", "tokenwire"}
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.partition(".")[0] in allowed, (path.name, name)
                assert not name.startswith("tokenwire.admin"), path.name


def test_a_client_shows_its_address():
    with tokenwire.Client("localhost:9000") as client:
        assert repr(client) == "Client('localhost:9000')"
    assert repr(tokenwire.AsyncClient("localhost:9000")) == "AsyncClient('localhost:9000')"
