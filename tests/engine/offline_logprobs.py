"""Prints, as JSON, the log probability of each token of a sequence by a plain transformers forward pass in float32.

python offline_logprobs.py MODEL_FOLDER < '[[prompt ids ...], [output ids ...]]'
"""

from __future__ import annotations

import json
import sys

import torch
from transformers import AutoModelForCausalLM

if __name__ == "__main__":
    prompt, output = json.load(sys.stdin)
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + output])).logits[0].log_softmax(-1)
    ids = prompt + output
    chosen = [float(logits[i - 1, ids[i]]) for i in range(1, len(ids))]
    tops = [logits[i - 1].topk(3) for i in range(len(prompt), len(ids))]
    top = [[[int(t), float(v)] for t, v in zip(k.indices, k.values, strict=True)] for k in tops]
    print(json.dumps({"prompt": chosen[: len(prompt) - 1], "output": chosen[len(prompt) - 1 :], "top": top}))
