"""Generates the Python stubs of the contract into clients/python, or proves that those there are fresh.

Runs in `.venv-proto` (see the Makefile): grpcio-tools 1.78.0 emits stubs that load on protobuf 6.31 to 7.x, and itself
needs protobuf < 7, which the service's own environment cannot offer.

    python protos/generate.py          # write
    python protos/generate.py --check  # exit 1 and name what differs
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent
OUT = ROOT.parent / "clients" / "python"
OWN = ("tokenwire/v1", "tokenwire/admin/v1")


def generate(out: Path) -> None:
    """Writes modules and stubs of every proto of ours, and of buf/validate, below `out`."""
    includes = [f"-I{ROOT}", f"-I{ROOT / 'third_party'}", f"-I{Path(grpc_tools.__file__).parent / '_proto'}"]
    own = sorted(str(p.relative_to(ROOT)) for folder in OWN for p in (ROOT / folder).glob("*.proto"))
    services = [p for p in own if "\nservice " in (ROOT / p).read_text()]
    runs = [
        [f"--python_out={out}", f"--mypy_out=quiet:{out}", *own, "buf/validate/validate.proto"],
        [f"--grpc_python_out={out}", f"--mypy_grpc_out=quiet:{out}", *services],
    ]
    for run in runs:
        if protoc.main(["protoc", *includes, *run]) != 0:
            sys.exit("protoc failed")


def files(root: Path) -> dict[str, str]:
    """Generated files below `root`, by relative path."""
    return {
        str(p.relative_to(root)): p.read_text()
        for folder in (*OWN, "buf/validate")
        for p in sorted((root / folder).glob("*_pb2*"))
        if p.is_file()
    }


def main() -> int:
    """Parses the one flag; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the stubs are stale")
    if not parser.parse_args().check:
        OUT.mkdir(parents=True, exist_ok=True)
        generate(OUT)
        print(f"{len(files(OUT))} files in {OUT.name}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh, there = files(Path(folder)), files(OUT)
    stale = sorted(name for name in fresh.keys() | there.keys() if fresh.get(name) != there.get(name))
    for name in stale:
        print(f"stale: clients/python/{name} (run `make proto`)", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
