"""Whatever the calls hold and however the output is cut: streamed, it means what the whole means."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.scripted.conftest import StageMaker
from tests.scripted.test_parsers import answer, meaning
from tests.scripted.transcripts import Transcript

pytestmark = pytest.mark.filterwarnings("ignore")

EXAMPLES = 40

# What a model writes between its markers: any text that is not a marker itself, and JSON of some depth.
TEXT = st.text(st.characters(exclude_characters="<>[]{}|\u0000\ufffd", exclude_categories=("Cs", "Cc")), max_size=24)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT.filter(bool), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.sampled_from(["city", "days", "größe", "x y"]), VALUE, max_size=3)
CALLS = st.lists(st.tuples(st.sampled_from(["get_weather", "now"]), ARGUMENTS), min_size=1, max_size=3)
STEPS = st.lists(st.integers(1, 12), max_size=400).map(tuple)


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def hermes(calls: list[tuple[str, Any]]) -> str:
    return "\n".join(f"<tool_call>\n{dump({'name': n, 'arguments': a})}\n</tool_call>" for n, a in calls)


def mistral(calls: list[tuple[str, Any]]) -> str:
    return "[TOOL_CALLS]" + dump([{"name": n, "arguments": a} for n, a in calls])


FAMILIES = {
    "hermes": (hermes, ("<tool_call>", "</tool_call>"), 3),
    "mistral": (mistral, ("[TOOL_CALLS]",), 3),
    "llama3_json": (lambda calls: dump({"name": calls[0][0], "parameters": calls[0][1]}), ("<|python_tag|>",), 1),
}


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(calls=CALLS, steps=STEPS)
async def test_calls_stream_as_they_are(
    stages: StageMaker, family: str, calls: list[tuple[str, Any]], steps: tuple[int, ...]
) -> None:
    write, special, most = FAMILIES[family]
    stage = await stages(special, tool_call_parser=family)
    transcript = Transcript(family, write(calls[:most]), tool_parser=family)
    whole, _ = await answer(stage, transcript, (), stream=False)
    assert meaning(whole)[2] == calls[:most]
    streamed, _ = await answer(stage, transcript, steps, stream=True)
    assert meaning(streamed) == meaning(whole)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(thought=TEXT, said=TEXT, steps=STEPS)
async def test_reasoning_streams_as_it_is(stages: StageMaker, thought: str, said: str, steps: tuple[int, ...]) -> None:
    stage = await stages(("<think>", "</think>"), reasoning_parser="qwen3")
    transcript = Transcript("qwen3", f"<think>{thought}</think>{said}", reasoning_parser="qwen3")
    whole, _ = await answer(stage, transcript, (), stream=False)
    streamed, _ = await answer(stage, transcript, steps, stream=True)
    assert meaning(streamed) == meaning(whole) == (thought, said, [])
