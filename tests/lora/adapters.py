"""Makes LoRA adapters for SmolLM2-135M as PEFT saves them, of seeded random weights; and bad ones of each kind."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

LAYERS, HIDDEN, KV = 30, 576, 192


def write_adapter(folder: Path, seed: int, *, rank: int = 8, hidden: int = HIDDEN, layers: int = LAYERS) -> Path:
    """Writes one that changes what the model says."""
    folder.mkdir(parents=True)
    made = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(layers):
        for name, out in (("q_proj", HIDDEN), ("v_proj", KV)):
            key = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{key}.lora_A.weight"] = torch.randn(rank, hidden, generator=made) * 0.08
            weights[f"{key}.lora_B.weight"] = torch.randn(out, rank, generator=made) * 0.08
    save_file(weights, folder / "adapter_model.safetensors")
    write_config(folder, r=rank)
    return folder


def write_config(folder: Path, **changes: object) -> None:
    """Writes adapter_config.json."""
    config = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config | changes))


def write_bad(root: Path, outside: Path) -> dict[str, str]:
    """Writes adapters that must be refused; returns a word of each refusal by name."""
    write_adapter(root / "high-rank", 1, rank=64)
    write_adapter(root / "other-model", 2, hidden=128)
    write_adapter(root / "no-weights", 3)
    (root / "no-weights" / "adapter_model.safetensors").unlink()
    write_adapter(root / "cut", 4)
    weights = root / "cut" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    write_adapter(root / "no-json", 5)
    (root / "no-json" / "adapter_config.json").write_text("{")
    write_adapter(root / "no-lora", 6)
    write_config(root / "no-lora", peft_type="IA3")
    write_adapter(root / "too-deep", 10, layers=40)
    write_adapter(outside / "secret", 8)
    write_adapter(root / "linked-weights", 9)
    (root / "linked-weights" / "adapter_model.safetensors").unlink()
    (root / "linked-weights" / "adapter_model.safetensors").symlink_to(outside / "secret" / "adapter_model.safetensors")
    (root / "linked").symlink_to(outside / "secret")
    return {
        "high-rank": "rank 64",
        "other-model": "is of another model",
        "no-weights": "has no adapter_model.safetensors",
        "cut": "has a broken adapter_model.safetensors",
        "no-json": "broken adapter_config.json",
        "too-deep": "is of another model",
        "no-lora": "is no LoRA adapter",
        "linked-weights": "has no adapter_model.safetensors",
        "linked": "not",
        "missing": "not",
        "../secret": "not",
        "..": "not",
        "a/../../secret": "not",
    }
