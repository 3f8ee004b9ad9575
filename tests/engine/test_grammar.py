"""Tools by grammar, structured output and logprobs on the real model."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import jsonschema
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.engine.conftest import RealService
from tokenwire.v1 import (
    chat_pb2,
    chat_pb2_grpc,
    generation_pb2,
    generation_pb2_grpc,
    output_pb2,
    sampling_pb2,
)
from tokenwire_server.embedded import provide

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

ATTEMPTS = 8

SCHEMAS = 24
"""Random schemas here; `make fuzz` has ten times as many."""


def chat_request(text: str = "What is the weather in Paris?", **kwargs: Any) -> chat_pb2.ChatRequest:
    message = chat_pb2.ChatMessage(role=chat_pb2.ROLE_USER, content=[chat_pb2.ContentPart(text=text)])
    sampling = {"temperature": 0, "max_tokens": 120, **kwargs.pop("sampling", {})}
    return chat_pb2.ChatRequest(messages=[message], sampling=sampling, **kwargs)


async def chat(service: RealService, request: chat_pb2.ChatRequest) -> chat_pb2.ChatChoice:
    return (await chat_pb2_grpc.ChatServiceStub(service.channel).Chat(request)).choices[0]


WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["c", "f"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TIME = {"type": "object", "properties": {"zone": {"enum": ["utc", "cet"]}}, "required": ["zone"]}
TOOLS = [
    {"function": {"name": "get_weather", "description": "Weather of a city", "parameters": json.dumps(WEATHER)}},
    {"function": {"name": "get_time", "parameters": json.dumps(TIME)}},
]


async def streamed_calls(service: RealService, request: chat_pb2.ChatRequest) -> list[tuple[str, str]]:
    calls: dict[int, list[str]] = {}
    async for event in chat_pb2_grpc.ChatServiceStub(service.channel).StreamChat(request):
        for call in event.delta.tool_calls:
            named = calls.setdefault(call.index, ["", ""])
            assert not (named[0] and call.name), "a name came twice"
            named[0] += call.name
            named[1] += call.arguments
    return [(name, arguments) for name, arguments in calls.values()]


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ({"function": "get_weather"}, {"get_weather"}),
        ({"function": "get_time"}, {"get_time"}),
        ({"mode": "MODE_REQUIRED"}, {"get_weather", "get_time"}),
        ({"allowed": {"mode": "MODE_REQUIRED", "functions": ["get_time"]}}, {"get_time"}),
    ],
)
async def test_a_forced_call_has_arguments_that_conform(
    service: RealService, choice: dict[str, Any], names: set[str]
) -> None:
    request = chat_request(tools=TOOLS, tool_choice=choice, parallel_tool_calls=False)
    answer = await chat(service, request)
    assert answer.finish_reason == output_pb2.FINISH_REASON_TOOL_CALLS
    (call,) = answer.tool_calls
    assert call.name in names
    jsonschema.validate(json.loads(call.arguments), WEATHER if call.name == "get_weather" else TIME)
    assert await streamed_calls(service, request) == [(call.name, call.arguments)]


SCALARS = st.one_of(
    st.builds(lambda n: {"type": "string", "maxLength": n}, st.integers(0, 8)),
    st.builds(
        lambda low, span: {"type": "integer", "minimum": low, "maximum": low + span},
        st.integers(-50, 50),
        st.integers(0, 99),
    ),
    st.just({"type": "number", "minimum": 0, "maximum": 9}),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}]),
    st.builds(
        lambda values: {"enum": values},
        st.lists(st.sampled_from(["red", "green", 7, -1, None, "ünï"]), min_size=1, max_size=4, unique=True),
    ),
)


def containers(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.builds(
            lambda items, low, span: {"type": "array", "items": items, "minItems": low, "maxItems": low + span},
            inner,
            st.integers(0, 2),
            st.integers(0, 2),
        ),
        st.builds(
            lambda properties: {
                "type": "object",
                "properties": properties,
                "required": [*properties],
                "additionalProperties": False,
            },
            st.dictionaries(st.sampled_from(["a", "b", "name", "größe", "x y"]), inner, min_size=1, max_size=3),
        ),
    )


def random_schemas(count: int) -> list[dict[str, Any]]:
    """So many different schemas, the same ones each time."""
    found: dict[str, dict[str, Any]] = {}

    @settings(max_examples=3 * count, derandomize=True, database=None, phases=[Phase.generate])
    @given(st.recursive(SCALARS, containers, max_leaves=4))
    def draw(schema: dict[str, Any]) -> None:
        found[json.dumps(schema)] = schema

    draw()
    assert len(found) >= count
    return [*found.values()][-count:]  # the first ones are small


async def conforms(service: RealService, schema: dict[str, Any], seed: int) -> int:
    """Asks until an answer ends, with another seed each time; it must conform. Returns how often it asked."""
    for attempt in range(ATTEMPTS):
        request = chat_request(
            "Give me an example.",
            structured_output={"json_schema": json.dumps(schema)},
            sampling={"temperature": 1.0, "seed": seed + 1000 * attempt, "max_tokens": 200},
        )
        answer = await chat(service, request)
        # White space or digits without end, which a model this small likes, are cut.
        if answer.finish_reason != output_pb2.FINISH_REASON_LENGTH:
            jsonschema.validate(json.loads(answer.content), schema)
            return attempt + 1
    pytest.fail(f"no answer to {schema} ended")


async def check_schemas(service: RealService, count: int) -> None:
    """Asserts that an answer to each of so many random schemas conforms."""
    asked = await asyncio.gather(
        *(conforms(service, schema, seed) for seed, schema in enumerate(random_schemas(count)))
    )
    print(f"{count} schemas: an answer to each conforms; {sum(one > 1 for one in asked)} were asked again")


async def test_answers_conform_to_random_schemas(service: RealService) -> None:
    await check_schemas(service, SCHEMAS)


async def test_regex_choice_object_and_grammar_hold(service: RealService) -> None:
    for pattern in ("[A-Z]{3}-[0-9]{2}", "(yes|no), [a-z]{2,5}!", "ü{3}"):
        answer = await chat(service, chat_request(structured_output={"regex": pattern}))
        assert re.fullmatch(pattern, answer.content), answer.content
    choices = ["certainly", "never", "jamais 🦜"]
    answer = await chat(service, chat_request(structured_output={"choice": {"choices": choices}}))
    assert answer.content in choices
    answer = await chat(service, chat_request(structured_output={"grammar": 'root ::= ("ab" | "cd")+ "."'}))
    assert re.fullmatch(r"(ab|cd)+\.", answer.content) or answer.finish_reason == output_pb2.FINISH_REASON_LENGTH


DEEP = "{}"
for _ in range(100):
    DEEP = f'{{"type":"array","items":{DEEP}}}'
RING = '{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}'

REFUSED: dict[str, dict[str, Any]] = {
    "not JSON": {"json_schema": "{"},
    "not a schema": {"json_schema": "[]"},
    "unknown type": {"json_schema": '{"type":"foo"}'},
    "too deep": {"json_schema": DEEP},
    "references in a ring": {"json_schema": RING},
    "1 MB": {"json_schema": json.dumps({"enum": ["x" * 1000] * 1000})},
    "NaN": {"json_schema": '{"const": NaN}'},
    "unsupported keywords": {
        "json_schema": '{"type":"array","uniqueItems":true,"items":{"type":"integer","multipleOf":3}}'
    },
    "broken regex": {"regex": "(a"},
    "regex with NUL": {"regex": "a\0"},
    "grammar without its rule": {"grammar": "root ::= foo"},
    "grammar nested": {"grammar": "root ::= " + "(" * 1900 + '"a"' + ")" * 1900},
    "empty choices": {"choice": {"choices": []}},
    "broken tag": {"structural_tag": '{"type": "nothing"}'},
}

HOSTILE: dict[str, dict[str, Any]] = {
    "nested stars": {"regex": "(((((a*)*)*)*)*)*b"},
    "counted twice": {"regex": "((a{1,100}){1,100}){1,100}"},
    "long": {"regex": ".{1,50000}x"},
    "ambiguous": {"regex": "(.*a){100}"},
    "alternatives": {"regex": "(a|a)*" * 20},
    "left recursion": {"grammar": 'root ::= a\na ::= a a | "x"'},
    "many keys": {
        "json_schema": json.dumps({"type": "object", "properties": {f"k{i}": {"type": "string"} for i in range(900)}})
    },
    "a tree": {"json_schema": '{"type":"object","properties":{"next":{"$ref":"#"}},"additionalProperties":false}'},
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_is_refused_before_the_stream(service: RealService, name: str) -> None:
    call = chat_pb2_grpc.ChatServiceStub(service.channel).StreamChat(
        chat_request(structured_output=REFUSED[name]), timeout=20
    )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for event in call:
            pytest.fail(f"{event} came first")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (caught.value.details() or "").startswith("structured_output")


async def test_hostile_patterns_harm_nobody_else(service: RealService) -> None:
    stub = chat_pb2_grpc.ChatServiceStub(service.channel)

    async def attack(form: dict[str, Any]) -> grpc.StatusCode:
        try:
            await stub.Chat(chat_request(structured_output=form, sampling={"max_tokens": 24}), timeout=30)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    async def neighbour() -> str:
        return (await stub.Chat(chat_request("Say hello.", sampling={"max_tokens": 16}), timeout=60)).choices[0].content

    alone = await neighbour()
    codes, *others = await asyncio.gather(
        asyncio.gather(*map(attack, HOSTILE.values())), *(neighbour() for _ in range(4))
    )
    allowed = {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}
    assert set(codes) <= allowed, dict(zip(HOSTILE, codes, strict=True))
    assert all(other == alone for other in others)


async def test_logprobs_agree_with_a_forward_pass(service: RealService, offline_environment: dict[str, str]) -> None:
    request = generation_pb2.GenerateRequest(
        text="The quick brown fox jumps over the lazy dog, and then it",
        sampling=sampling_pb2.SamplingParams(temperature=0, max_tokens=16, ignore_eos=True),
        output=sampling_pb2.OutputOptions(logprobs=3, prompt_logprobs=0, return_token_ids=True),
    )
    response = await generation_pb2_grpc.GenerationServiceStub(service.channel).Generate(request)
    prompt, output = list(response.prompt.token_ids), list(response.outputs[0].token_ids)
    program = Path(__file__).with_name("offline_logprobs.py")
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, program, provide("embedded:smollm2-135m-instruct", print)],
        input=json.dumps([prompt, output]),
        env=offline_environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    expected = json.loads(done.stdout.splitlines()[-1])
    assert [e.logprob for e in response.prompt.logprobs[1:]] == pytest.approx(expected["prompt"], abs=1e-3)
    assert [e.logprob for e in response.outputs[0].logprobs] == pytest.approx(expected["output"], abs=1e-3)
    for entry, top in zip(response.outputs[0].logprobs, expected["top"], strict=True):
        assert [t.logprob for t in entry.top] == pytest.approx([value for _, value in top], abs=1e-3)
        assert entry.top[0].token_id == top[0][0]
