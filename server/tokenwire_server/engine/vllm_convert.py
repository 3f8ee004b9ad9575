"""Turns a GGUF file into a folder of safetensors that vLLM loads. Run as a program, once: it imports torch.

python -m tokenwire_server.engine.vllm_convert FILE.gguf FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["convert"]


def convert(gguf: Path, folder: Path) -> None:
    """Dequantizes `gguf` to bfloat16 weights and writes them, config and tokenizer to `folder`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(
        **source, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
