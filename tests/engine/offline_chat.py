"""Prints, as JSON, what vllm.LLM says to each prompt by itself: the reference that the service is held to.

python offline_chat.py MODEL_FOLDER MAX_TOKENS PROMPT ...
"""

from __future__ import annotations

import json
import sys

from vllm import LLM, SamplingParams

if __name__ == "__main__":
    folder, max_tokens, *prompts = sys.argv[1:]
    llm = LLM(folder, dtype="float32", enforce_eager=True, max_model_len=4096, max_num_seqs=64)
    params = SamplingParams(temperature=0, max_tokens=int(max_tokens))
    conversations = [[{"role": "user", "content": prompt}] for prompt in prompts]
    # One at a time, as the tests ask: a batch may break ties another way.
    outputs = [llm.chat([conversation], params, use_tqdm=False)[0] for conversation in conversations]
    answers = [
        {"text": o.outputs[0].text, "token_ids": list(o.outputs[0].token_ids), "prompt": list(o.prompt_token_ids)}
        for o in outputs
    ]
    print(json.dumps(answers))
