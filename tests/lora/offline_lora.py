"""Prints, as JSON, what vllm.LLM says with each adapter by itself: the reference that the service is held to.

python offline_lora.py MODEL_FOLDER ADAPTERS_FOLDER PROMPT MAX_TOKENS NAME ...
"""

from __future__ import annotations

import json
import sys

from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

if __name__ == "__main__":
    model, folder, prompt, max_tokens, *names = sys.argv[1:]
    llm = LLM(model, dtype="float32", enforce_eager=True, max_model_len=1024, enable_lora=True, max_loras=1)
    params = SamplingParams(temperature=0, max_tokens=int(max_tokens))
    said = {}
    for number, name in enumerate(["", *names]):
        adapter = LoRARequest(name, number, f"{folder}/{name}") if name else None
        (output,) = llm.generate([prompt], params, lora_request=adapter, use_tqdm=False)
        said[name] = list(output.outputs[0].token_ids)
    print(json.dumps(said))
