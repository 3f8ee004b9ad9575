"""The catalogue of LoRA adapters: which there are and whether one may be loaded. Paths and metadata only."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from tokenwire.v1 import model_pb2
from tokenwire_server.errors import StatusError

__all__ = ["AdapterFiles", "Catalogue", "adapter_in", "adapter_model"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_MAX_CONFIG_BYTES = 1 << 20
_MAX_HEADER_BYTES = 1 << 24
_LAYER = re.compile(r"\.layers\.(\d+)\.")
_READS_HIDDEN = re.compile(r"\.(q|k|v|qkv|gate|up|gate_up)_proj\.")
_WRITES_HIDDEN = re.compile(r"\.(o|down)_proj\.")


def adapter_in(name: str, model_id: str) -> str | None:
    """The adapter that `model:adapter` names; None where `name` is not of this model."""
    model, colon, adapter = name.rpartition(":")
    return adapter if colon and model == model_id else None


def adapter_model(model: model_pb2.Model, adapter: str) -> model_pb2.Model:
    """An adapter as a model of its own, as ListModels shows it."""
    made = model_pb2.Model()
    made.CopyFrom(model)
    made.id, made.parent = f"{model.id}:{adapter}", model.id
    return made


@dataclass(frozen=True)
class AdapterFiles:
    """An adapter that may be loaded."""

    name: str
    folder: Path
    rank: int


class Catalogue:
    """Adapters in the subfolders of one folder, as PEFT saves them.

    Args:
        folder: Where; it is looked at anew on each call, so that adapters may come and go.
        max_rank: Largest rank that the engine was started for.
        hidden_size: Width of the model.
        layers: Number of its layers.
    """

    def __init__(self, folder: Path, *, max_rank: int = 0, hidden_size: int = 0, layers: int = 0) -> None:
        self._folder = folder.expanduser()
        self._max_rank = max_rank
        self._hidden_size = hidden_size
        self._layers = layers

    def names(self) -> list[str]:
        """Names of the adapters, sorted: folders with a configuration, whether or not it is good."""
        try:
            found = [entry for entry in self._folder.iterdir() if _NAME.fullmatch(entry.name)]
        except OSError:
            return []
        return sorted(entry.name for entry in found if (entry / _CONFIG).is_file() and self._inside(entry))

    def find(self, name: str) -> AdapterFiles:
        """Looks an adapter up.

        Raises:
            StatusError: ADAPTER_NOT_FOUND, or INVALID_FIELD for one that cannot be what it says.
        """
        folder = self._folder / name
        if name not in self.names():
            raise StatusError.not_found("ADAPTER_NOT_FOUND", "adapter", name, self.names())
        for file in (folder / _CONFIG, folder / _WEIGHTS):
            if not file.is_file() or not self._inside(file):
                raise _bad(name, f"has no {file.name}")
        rank = self._rank(name, folder / _CONFIG)
        self._check_weights(name, folder / _WEIGHTS)
        return AdapterFiles(name, folder.resolve(), rank)

    def _check_weights(self, name: str, file: Path) -> None:
        """By its header: that it is whole, and made for a model of this shape, which vLLM does not check."""
        try:
            with file.open("rb") as opened:
                length = int.from_bytes(opened.read(8), "little")
                if length > _MAX_HEADER_BYTES:
                    raise ValueError
                tensors = json.loads(opened.read(length))
            tensors.pop("__metadata__", None)
            shapes = {key: tensor["shape"] for key, tensor in tensors.items()}
            end = max(tensor["data_offsets"][1] for tensor in tensors.values())
            if 8 + length + end != file.stat().st_size:
                raise ValueError
            fits = all(self._fits(key, shape) for key, shape in shapes.items())
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            raise _bad(name, f"has a broken {_WEIGHTS}") from None
        if not fits:
            raise _bad(name, "is of another model: its layers have other shapes")

    def _fits(self, key: str, shape: list[int]) -> bool:
        layer = _LAYER.search(key)
        if layer is not None and int(layer[1]) >= self._layers:
            return False
        if "lora_A" in key and _READS_HIDDEN.search(key):
            return shape[1] == self._hidden_size
        if "lora_B" in key and _WRITES_HIDDEN.search(key):
            return shape[0] == self._hidden_size
        return True

    def _rank(self, name: str, file: Path) -> int:
        try:
            if file.stat().st_size > _MAX_CONFIG_BYTES:
                raise ValueError
            config = json.loads(file.read_text())
            kind, rank = config["peft_type"], config["r"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise _bad(name, f"has a broken {_CONFIG}") from None
        if kind != "LORA" or isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
            raise _bad(name, f"is no LoRA adapter by its {_CONFIG}")
        if rank > self._max_rank:
            raise _bad(name, f"has rank {rank}; the engine was started for {self._max_rank} (max_lora_rank)")
        return rank

    def _inside(self, path: Path) -> bool:
        """Whether it lies in the folder once links are followed."""
        try:
            return path.resolve().is_relative_to(self._folder.resolve())
        except (OSError, RuntimeError):
            return False


def _bad(name: str, words: str) -> StatusError:
    return StatusError.field("adapter", f"`{name}` {words}")
