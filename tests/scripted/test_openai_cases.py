"""The acceptance cases behind the real gRPC contract: REST over a channel, a gRPC server, the service, all of vLLM but
the model, which a script stands in for.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpx
import pytest

from tests.rest.conformance.cases import Run, load_cases, runs_of
from tests.rest.conformance.runner import run
from tests.rest.conformance.target import Target
from tests.rest.http_server import http_server
from tests.scripted.conftest import Stage, StageMaker
from tokenwire_server.grpc_server import GrpcDoor, plain_server
from tokenwire_server.guard import Guard, GuardLimits
from tokenwire_server.rest import create_app
from tokenwire_server.rest.channel import ChannelBackend
from tokenwire_server.service import Service
from tokenwire_server.validation import Validator

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(60)]

MODEL = "scripted"
KEY = "sk-good"
MAX_BODY_BYTES = 200_000

CALL = '<tool_call>\n{"name": "f", "arguments": {"x": "1"}}\n</tool_call>'

TEXTS = {
    "stream-finish-in-own-chunk": CALL,
    "tools-arguments-always-string": CALL,
    "tools-choice-null-means-omitted": CALL,
    "tools-content-before-call-kept": f"Sure. {CALL}",
    "tools-no-repeats-no-summary": CALL,
    "reasoning-both-keys": "<think>7 and 8</think>56",
    "stop-with-several-tokens-per-chunk": "abc STOPword def",
}
"""What the model says where it is not `Hello world!`, or what the grammar wants."""

ELSEWHERE = {
    "logprobs-echo-of-token-ids": "logprobs of a prompt are the model's: make conformance",
    "drain-keeps-streams": "tests/server/test_cli_start.py",
    "sdk-retries-leave-no-orphans": "tests/rest/test_conformance.py",
    "embeddings-base64": "on a real embedding model: make conformance",
    "lora-name-in-reply": "needs an adapter",
    "usage-cached-tokens": "on the real engine's cache: make conformance",
}
RUNS = [one for case in load_cases() for one in runs_of(case) if "$EMBEDDING" not in str(one.request)]

REFUSES_SYSTEM = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}"
REFUSES_SYSTEM += "{% endif %}{{ m.content }}{% endfor %}"


def grammar_text(wanted: Any) -> str:
    """What a grammar leaves no choice about, in these cases."""
    if wanted.structural_tag:  # a call of f, in the model's syntax
        assert '"required": ["x"]' in json.dumps(json.loads(wanted.structural_tag)), "arguments are free"
        return CALL
    if wanted.grammar:  # which vLLM makes of a choice
        return str(json.loads(wanted.grammar.partition("root ::= ")[2].partition(" | ")[0]))
    return '{"a": 1}'


def script(one: Run, stage: Stage, request: Any) -> Any:
    """What the model does with a request of a case."""
    from tokenwire_server.engine.vllm_scripted import Script

    if one.case == "internal-error-hides-text":
        raise RuntimeError("secret-token-123")
    params = request.sampling_params
    text = TEXTS.get(one.case, "Hello world!")
    if params.structured_outputs is not None:
        text = grammar_text(params.structured_outputs)
    elif one.case in ("seed-semantics", "completions-stream-index-prompt-major"):
        # An output's seed is all that sets it apart; a model would sample by it.
        text = hashlib.sha256(str((params.seed, request.prompt_token_ids)).encode()).hexdigest()[:8]
    steps = [8] * 9 if one.case == "stop-with-several-tokens-per-chunk" else []
    wait = {"stream-keep-alive-comments": 0.9, "overload-has-retry-after": 0.5}.get(one.case, 0.0)
    dies = 2 if one.case == "stream-engine-failure-is-an-error-event" else None
    return Script(stage.engine.encode(text), steps, ttft_s=wait, dies_after=dies)


async def stage_of(one: Run, stages: StageMaker) -> Stage:
    markers = ("<tool_call>", "</tool_call>")
    if one.case == "reasoning-both-keys":
        return await stages(("<think>", "</think>"), reasoning_parser="qwen3", max_model_len=4096)
    if one.case == "messages-system-refused-by-template":
        return await stages((), template=REFUSES_SYSTEM, max_model_len=4096)
    apart = {"seed": 1} if one.case == "stream-engine-failure-is-an-error-event" else {}  # an engine that may die
    return await stages(markers, tool_call_parser="hermes", max_model_len=4096, **apart)


@asynccontextmanager
async def shim(engine: Any, guard: Guard, keep_alive_s: float) -> AsyncIterator[httpx.AsyncClient]:
    """REST over a channel to a gRPC server over the service."""
    service = Service(engine, guard, Validator(), version="test")
    async with (
        plain_server(GrpcDoor(service, MODEL, 8 << 20), "127.0.0.1:0") as (_, port),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        app = create_app(
            ChannelBackend(channel),
            version="1.2.3",
            max_body_bytes=MAX_BODY_BYTES,
            keep_alive_s=keep_alive_s,
            cors_origins=["https://allowed.example"],
        )
        async with (
            http_server(app) as http_port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{http_port}", timeout=30, trust_env=False) as client,
        ):
            yield client


@pytest.mark.parametrize("one", RUNS, ids=[one.title for one in RUNS])
async def test_case(stages: StageMaker, one: Run) -> None:
    if one.case in ELSEWHERE:
        pytest.skip(ELSEWHERE[one.case])
    stage = await stage_of(one, stages)
    stage.tell = lambda request: script(one, stage, request)  # type: ignore[method-assign]
    stage.engine._tell = stage.tell
    full = one.case == "overload-has-retry-after"
    keyed = "server started with an API key" in one.needs
    guard = Guard(GuardLimits(1, 0) if full else GuardLimits(), [hashlib.sha256(KEY.encode()).hexdigest()] * keyed)
    models = {"CHAT_MODEL": MODEL, "COMPLETION_MODEL": MODEL, "LORA_MODEL": f"{MODEL}:poet"}
    async with shim(stage.engine, guard, 0.2 if one.case == "stream-keep-alive-comments" else 15.0) as client:
        target = Target(client, models, KEY, stage.engine.limits.max_model_len, before_next=lambda: heal(stage, one))
        if full:
            async with asyncio.TaskGroup() as group:
                first = group.create_task(target.send(one.request))
                await asyncio.sleep(0.2)
                await run(one, target)
            assert first.result().status == 200
        else:
            await run(one, target)


def heal(stage: Stage, one: Run) -> None:
    """A plain request comes next."""
    plain = Run("plain", "", one.request, {})
    stage.engine._tell = lambda request: script(plain, stage, request)
