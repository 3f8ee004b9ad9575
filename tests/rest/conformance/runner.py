"""Runs a case's request against a target and applies its check."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from tests.rest.conformance.cases import Run
from tests.rest.conformance.checks import (
    at_path,
    check_error,
    check_finite,
    check_headers,
    check_json,
    check_output_schema,
    close_floats,
    fail_unless,
)
from tests.rest.conformance.stream_checks import PlainReply, check_stream
from tests.rest.conformance.target import Answer, Target

__all__ = ["BEYOND", "run"]

BEYOND = frozenset({"after_seconds", "running_requests", "open_streams", "new_request", "health_status"})
"""Checks that need more than one exchange with a running server; a case that has one is for a test of its own."""

_COMPARES = {"equals_plain", "usage_equals_plain"}


async def run(run_: Run, target: Target) -> None:
    """Sends the request, as often as the case says, and checks the last answer.

    Raises:
        AssertionError: Says what is wrong.
    """
    answers = [await target.send(run_.request) for _ in range(run_.repeat)]
    answer, check = answers[-1], run_.check
    _check_status(answer, check)
    await _check_answer(answer, check, run_, target)
    outcome = check.get(f"if_{answer.status}")
    if outcome:
        await _check_answer(answer, outcome, run_, target)
    for path in check.get("runs_equal", ()):
        found = [at_path(one.json(), path) for one in answers]
        fail_unless(all(one == found[0] for one in found), f"{path} differs between runs")
    if "sdk" in check:
        await _check_sdk(run_, target, check["sdk"])
    if check.get("alive_after"):
        alive = await target.still_answers()
        fail_unless(alive.status == 200, f"the next request is answered {alive.status}: {alive.text[:200]}")


def _check_status(answer: Answer, check: Mapping[str, Any]) -> None:
    wanted = check.get("status")
    allowed = wanted if isinstance(wanted, list) else [wanted]
    fail_unless(wanted is None or answer.status in allowed, f"HTTP {answer.status}: {answer.text[:300]}")
    fail_unless(answer.status < 500 or wanted is not None, f"HTTP {answer.status}")


async def _check_answer(answer: Answer, check: Mapping[str, Any], run_: Run, target: Target) -> None:
    if "error" in check:
        check_error(answer, check["error"])
    if "headers" in check:
        check_headers(answer, check["headers"])
    if "body_not_contains" in check:
        fail_unless(check["body_not_contains"] not in answer.text, "the body holds what it must not")
    if "json" in check and not answer.is_stream:
        check_json(answer.json(), check["json"], target.models)
        await _check_floats(answer, check["json"], run_, target)
    if check.get("strict_json") or check.get("finite_numbers"):
        check_finite(answer.chunks() if answer.is_stream else [answer.json()])
    if "output_text_json_schema" in check:
        check_output_schema(answer.json(), check["output_text_json_schema"])
    if "sse" in check and run_.streams:
        plain = await _plain(run_, target, check["sse"])
        check_stream(answer, check["sse"], plain, target.models)


async def _plain(run_: Run, target: Target, wanted: Mapping[str, Any]) -> PlainReply:
    if not _COMPARES & set(wanted.get("rules", ())):
        return None
    answer = await target.send(run_.request, stream=False, stream_options=...)
    reply: PlainReply = answer.json()
    return reply


async def _check_floats(answer: Answer, rules: list[Mapping[str, Any]], run_: Run, target: Target) -> None:
    for rule in rules:
        if "base64_float32_close_to" in rule:
            other = await target.send(run_.request, **rule["base64_float32_close_to"])
            close_floats(at_path(answer.json(), rule["path"])[0], at_path(other.json(), rule["path"])[0])


async def _check_sdk(run_: Run, target: Target, wanted: Mapping[str, Any]) -> None:
    """What openai-python's accumulated message shows."""
    openai: Any = importlib.import_module("openai")
    body = {key: value for key, value in run_.request["body"].items() if key != "stream"}
    body["model"] = target.models["CHAT_MODEL"]
    inner = openai.DefaultAsyncHttpxClient(trust_env=False)
    url = f"{str(target.client.base_url).rstrip('/')}/v1"
    key = target.api_key or "none"
    async with (
        openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0, http_client=inner) as client,
        client.chat.completions.stream(**body) as stream,
    ):
        message = (await stream.get_final_completion()).choices[0].message
    calls = message.tool_calls or []
    fail_unless(len(calls) == wanted["tool_calls"], f"{len(calls)} calls in the SDK's message")
