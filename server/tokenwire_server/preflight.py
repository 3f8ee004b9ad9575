"""What can be known to be wrong before anything starts, each said in one line with what to do."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from tokenwire_server.config import LLMConfig
from tokenwire_server.embedded import EMBEDDED
from tokenwire_server.engine.arguments import check_engine_kwargs
from tokenwire_server.errors import StartError

__all__ = ["check_engine_installed", "check_host", "check_memory", "check_model", "check_names"]

_GIB = 2**30

_OVERHEAD_GIB = 2.0
"""What Python, torch and Ray take beside weights and KV cache; 2.7 GiB were seen in all with 0.5 GiB of weights."""


def check_host(host: str) -> None:
    """HAProxy in Serve binds one address family for all doors: loopback or everything.

    Raises:
        StartError: For anything else.
    """
    if host not in ("127.0.0.1", "0.0.0.0"):  # noqa: S104 - the operator's explicit choice
        raise StartError(
            f"--host {host}: must be 127.0.0.1 (this machine) or 0.0.0.0 (every interface), since replicas and HAProxy "
            "reach each other by the node's address; restrict other addresses with a firewall"
        )


def check_engine_installed(llm: LLMConfig) -> None:
    """The engine must be importable where it is asked for.

    Raises:
        StartError: It is not installed.
    """
    if llm.llm_engine != "echo" and importlib.util.find_spec("vllm") is None:
        raise StartError(
            "vllm is not installed: pip install 'tokenwire[cpu]', or 'tokenwire[gpu]' on a machine with a GPU "
            "(or set llm_engine: echo to try everything else)"
        )


def check_names(llm: LLMConfig) -> None:
    """What is wrong on any machine: names that an engine does not know.

    Raises:
        StartError: An argument in `engine_kwargs`, or an embedded model.
    """
    check_engine_kwargs(llm.llm_engine, llm.engine_kwargs)
    source = llm.model_loading_config.source
    if llm.llm_engine == "vLLM" and source.startswith("embedded:") and source not in EMBEDDED:
        raise StartError(f"model_source {source}: there is no such embedded model; known: {', '.join(EMBEDDED)}")


def check_model(llm: LLMConfig) -> None:
    """A source that is a path must be a folder with a config.json.

    Raises:
        StartError: There is no such folder, or it holds no model.
    """
    source = llm.model_loading_config.source
    check_names(llm)
    if llm.llm_engine != "vLLM" or not _is_path(source):
        return
    folder = Path(source).expanduser()
    if not folder.is_dir():
        raise StartError(f"model_source {source}: there is no such folder")
    if not (folder / "config.json").is_file():
        raise StartError(f"model_source {source}: the folder holds no config.json, so it is no Hugging Face model")


def _is_path(source: str) -> bool:
    return source.startswith(("/", "./", "../", "~")) or os.path.isdir(source)


def check_memory(models: Sequence[LLMConfig], environment: Mapping[str, str]) -> None:
    """On a CPU, weights and KV caches must fit the memory that is free.

    Args:
        models: Those that vLLM runs, on this machine.
        environment: For `VLLM_CPU_KVCACHE_SPACE`, GiB.

    Raises:
        StartError: They do not.
    """
    try:
        cache = float(environment.get("VLLM_CPU_KVCACHE_SPACE", "1"))
    except ValueError:
        raise StartError("VLLM_CPU_KVCACHE_SPACE must be a number of GiB") from None
    weights = sum(map(_weights_gib, models))
    need = weights + (cache + _OVERHEAD_GIB) * len(models)
    free = psutil.virtual_memory().available / _GIB
    if need > free:
        raise StartError(
            f"too little memory: the weights take {weights:.1f} GiB, the KV cache {cache:.1f} "
            f"(VLLM_CPU_KVCACHE_SPACE) and the rest about {_OVERHEAD_GIB:.0f} a model, but {free:.1f} GiB are free"
        )


def _weights_gib(llm: LLMConfig) -> float:
    """Size of a model's weights in memory; 0 where they are not on this machine yet."""
    folder = Path(llm.model_loading_config.source).expanduser()
    stored = sum(p.stat().st_size for p in folder.glob("*.safetensors")) / _GIB
    # Published weights are 16 bits wide.
    return stored * 2 if llm.engine_kwargs.get("dtype") == "float32" else stored
