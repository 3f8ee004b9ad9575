"""Every acceptance case over raw HTTP, with a script where a case needs its own engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import openai
import pytest
from tests.rest.conformance.cases import Run, load_cases, runs_of
from tests.rest.conformance.runner import BEYOND, run
from tests.rest.conformance.target import Target
from tests.rest.fake_backend import LIMITS, FakeBackend, Script

from tokenwire.v1 import output_pb2
from tokenwire_server.errors import StatusError

MODELS = {
    "CHAT_MODEL": "org/tiny",
    "COMPLETION_MODEL": "org/tiny",
    "EMBEDDING_MODEL": "mini",
    "LORA_MODEL": "org/tiny:poet",
}
CALL = (("f", '{"x":"1"}'),)
TOOLS = Script(tokens=(), tool_calls=CALL, finish=output_pb2.FINISH_REASON_TOOL_CALLS)
STOP_TEXT = Script(tokens=("abc STOPword def",))

# What the engine of a case does.
SCRIPTS: dict[str, Script] = {
    "stream-length-beats-tool-calls": Script(
        tokens=(), tool_calls=(("f", '{"x'),), finish=output_pb2.FINISH_REASON_LENGTH
    ),
    "stream-engine-failure-is-an-error-event": Script(raises=RuntimeError("engine"), raise_after=2),
    "stream-finish-in-own-chunk": TOOLS,
    "tools-arguments-always-string": TOOLS,
    "tools-content-before-call-kept": Script(tokens=("Sure. ",), tool_calls=CALL, finish=TOOLS.finish),
    "tools-no-repeats-no-summary": TOOLS,
    "tools-choice-null-means-omitted": TOOLS,
    "tools-required-content-null": TOOLS,
    "messages-system-refused-by-template": Script(
        raises=StatusError.field("messages", "cannot be put in the chat template: System role not supported")
    ),
    "reasoning-both-keys": Script(reasoning="7 and 8"),
    "logprobs-finite": Script(logprob=float("-inf")),
    "stop-with-several-tokens-per-chunk": STOP_TEXT,
    "grammar-cannot-compile": Script(
        raises=StatusError.field("structured_output.regex", "cannot be compiled to a grammar")
    ),
    "response-format-text-and-json-object": Script(tokens=('{"a": 1}',)),
    "seed-semantics": Script(numbered=True),
    "overload-has-retry-after": Script(raises=StatusError.retry_later("QUEUE_FULL", "Full.", 0.2)),
    "internal-error-hides-text": Script(raises=RuntimeError("secret-token-123")),
    "responses-text-format": Script(tokens=('{"a": 1}',)),
}
ELSEWHERE = {
    "logprobs-echo-of-token-ids": "needs a real tokenizer: the script's echo has 2 tokens whatever the prompt is",
    "drain-keeps-streams": "needs a server process to drain: tests of serving",
    "sdk-retries-leave-no-orphans": "has a test of its own below",
}
RUNS = [one for case in load_cases() for one in runs_of(case)]


def _prepare(backend: FakeBackend, one: Run, loop: asyncio.AbstractEventLoop) -> None:
    backend.script = SCRIPTS.get(one.case, Script())
    if "server started with an API key" in one.needs:
        backend.keys = frozenset({"sk-good"})
    if one.case == "stream-keep-alive-comments":
        gate = asyncio.Event()
        backend.script = Script(gate=gate)
        loop.call_later(0.9, gate.set)  # the silence under test: four keep-alive intervals


@pytest.mark.parametrize("one", RUNS, ids=[one.title for one in RUNS])
async def test_case(http: httpx.AsyncClient, backend: FakeBackend, one: Run) -> None:
    if one.case in ELSEWHERE:
        pytest.skip(ELSEWHERE[one.case])
    assert not BEYOND & set(one.check)
    _prepare(backend, one, asyncio.get_running_loop())
    heal: Callable[[], None] = backend.reset
    await run(one, Target(http, MODELS, "sk-good", LIMITS.max_model_len, before_next=heal))


def test_every_script_has_its_case() -> None:
    names = {one.case for one in RUNS}
    assert set(SCRIPTS) | set(ELSEWHERE) <= names
    assert len(names) == 60


async def test_sdk_retries_leave_no_orphans(port: int, backend: FakeBackend) -> None:
    backend.script = Script(gate=asyncio.Event())
    inner = openai.DefaultAsyncHttpxClient(trust_env=False)
    url = f"http://127.0.0.1:{port}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="k", timeout=0.1, max_retries=2, http_client=inner) as client:
        with pytest.raises(openai.APITimeoutError):
            await client.chat.completions.create(model="org/tiny", messages=[{"role": "user", "content": "hi"}])
    await asyncio.wait_for(backend.idle.wait(), 5)
    assert (len(backend.requests), backend.running) == (3, 0)
