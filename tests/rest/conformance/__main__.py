"""`python -m tests.rest.conformance`: the matrix of cases that pass, fail or do not apply.

With `--base-url` against that server, whatever it is; else against a service that it starts: the embedded chat model
with an adapter and the embedded embedding model behind one address.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from tests.cluster.conftest import serving
from tests.lora.adapters import write_adapter
from tests.rest.conformance.cases import Run, load_cases, runs_of
from tests.rest.conformance.runner import BEYOND, run
from tests.rest.conformance.target import Target

KEY = "sk-conformance"

CONFIG = f"""
llm_configs:
  - model_loading_config: {{model_id: chat, model_source: "embedded:smollm2-135m-instruct"}}
    engine_kwargs:
      dtype: float32
      enforce_eager: true
      max_model_len: 4096
      max_num_seqs: 64
      max_num_batched_tokens: 512
      tool_call_parser: hermes
    lora_config: {{dynamic_lora_loading_path: ADAPTERS}}
    deployment_config: {{ray_actor_options: {{num_cpus: 1}}}}
  - model_loading_config: {{model_id: embeddings, model_source: "embedded:all-minilm-l6-v2"}}
    engine_kwargs: {{runner: pooling, dtype: float32, enforce_eager: true}}
    deployment_config: {{ray_actor_options: {{num_cpus: 1}}}}
ingress_deployment_config: {{ray_actor_options: {{num_cpus: 0.5}}}}
api_keys: [{KEY}]
cors_origins: ["https://allowed.example"]
"""

OFFERS = [
    "CORS allowlist",
    "chat template with tool support",
    "engine that obeys",
    "openai-python: client",
    "prefix caching",
    "reproducible sampling",
    "responses endpoint",
    "tool calling",
]
"""What that service meets of what cases need; the rest is for tests/scripted/test_openai_cases.py."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.rest.conformance", description=__doc__)
    parser.add_argument("--base-url", default="", help="such as http://127.0.0.1:8000; default: a service of its own")
    parser.add_argument("--api-key", default=os.environ.get("TOKENWIRE_API_KEY", ""))
    parser.add_argument("--chat-model", default="", help="default: the first model of /v1/models")
    parser.add_argument("--completion-model", default="", help="default: the chat model")
    parser.add_argument("--embedding-model", default="", help="none: cases that embed are passed over")
    parser.add_argument("--lora-model", default="", help="none: cases with an adapter are passed over")
    parser.add_argument("--max-model-len", type=int, default=0, help="default: what /v1/models says")
    parser.add_argument(
        "--offer",
        action="append",
        default=[],
        metavar="WORDS",
        help="a need that the server meets, such as 'tool calling'; more than once; 'all' for all of them",
    )
    parser.add_argument("--case", action="append", default=[], help="only these cases")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="S", help="seconds for an answer")
    return parser.parse_args()


async def _target(client: httpx.AsyncClient, args: argparse.Namespace) -> Target:
    headers = {"authorization": f"Bearer {args.api_key}"} if args.api_key else {}
    listed: list[Any] = (await client.get("/v1/models", headers=headers)).raise_for_status().json()["data"]
    chat = args.chat_model or listed[0]["id"]
    models = {"CHAT_MODEL": chat, "COMPLETION_MODEL": args.completion_model or chat}
    if args.embedding_model:
        models["EMBEDDING_MODEL"] = args.embedding_model
    if args.lora_model:
        models["LORA_MODEL"] = args.lora_model
    said = next((one.get("max_model_len") for one in listed if one["id"] == chat), None)
    return Target(client, models, args.api_key, args.max_model_len or said or 4096)


def _missing(one: Run, target: Target, offers: list[str]) -> str:
    """Why a run does not apply; empty where it does."""
    if BEYOND & set(one.check):
        return "needs a test of its own"
    text = str(one.request)
    for name in ("EMBEDDING_MODEL", "LORA_MODEL"):
        if f"${name}" in text and name not in target.models:
            return f"needs ${name}"
    met = [*offers, *(["embedding model"] if "EMBEDDING_MODEL" in target.models else [])]
    met += ["a served LoRA adapter"] if "LORA_MODEL" in target.models else []
    met += ["server started with an API key"] if target.api_key else []
    if "all" in offers:
        return ""
    unmet = [need for need in one.needs if not any(need.startswith(offer) for offer in met)]
    return f"needs {', '.join(unmet)}" if unmet else ""


async def _outcome(one: Run, target: Target) -> tuple[str, str]:
    try:
        await run(one, target)
    # Whatever a server makes of a case, the matrix goes on.
    except Exception as error:  # noqa: BLE001
        return "FAIL", f"{type(error).__name__}: {error}"[:300]
    return "pass", ""


async def _main(args: argparse.Namespace) -> int:
    counts: Counter[str] = Counter()
    async with httpx.AsyncClient(base_url=args.base_url, timeout=args.timeout, trust_env=False) as client:
        target = await _target(client, args)
        for case in load_cases():
            if args.case and case["id"] not in args.case:
                continue
            for one in runs_of(case):
                why = _missing(one, target, args.offer)
                outcome, words = ("skip", why) if why else await _outcome(one, target)
                counts[outcome] += 1
                sys.stdout.write(f"{outcome:5} {one.title:60} {words}".rstrip() + "\n")
    sys.stdout.write(f"{counts['pass']} passed, {counts['FAIL']} failed, {counts['skip']} skipped\n")
    return 1 if counts["FAIL"] else 0


def _of_its_own(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        write_adapter(Path(folder) / "adapters" / "poet", 1)
        config = CONFIG.replace("ADAPTERS", f"{folder}/adapters")
        with serving(config, Path(folder)) as service:
            args.base_url, args.api_key, args.offer = service.base_url, KEY, OFFERS
            args.chat_model, args.embedding_model, args.lora_model = "chat", "embeddings", "chat:poet"
            return asyncio.run(_main(args))


if __name__ == "__main__":
    arguments = _arguments()
    sys.exit(asyncio.run(_main(arguments)) if arguments.base_url else _of_its_own(arguments))
