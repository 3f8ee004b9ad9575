from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from tests.rest.fake_backend import FakeBackend, Script
from tests.rest.sse import check_envelope, choices, events, text

from tokenwire.v1 import output_pb2

CHAT: dict[str, Any] = {"model": "org/tiny", "messages": [{"role": "user", "content": "hi"}]}
F = {"type": "function", "function": {"name": "f"}}
SEPARATORS = "a\u2028b\u2029c\u0085d"


async def chat(http: httpx.AsyncClient, **body: Any) -> Any:
    response = await http.post("/v1/chat/completions", json=CHAT | body)
    assert response.status_code == 200, response.text
    return events(response) if body.get("stream") else response.json()


async def test_whole_reply(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    response = await http.post("/v1/chat/completions", json=CHAT)
    assert response.headers["content-type"] == "application/json"
    reply = response.json()
    assert reply == {
        "id": reply["id"],
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "org/tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello world!", "refusal": None, "annotations": []},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 3,
            "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }


async def test_stream_is_openais(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    response = await http.post("/v1/chat/completions", json=CHAT | {"stream": True, "n": 2})
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    found = events(response)
    assert found[-1] == "[DONE]"
    for chunk in found[:-1]:
        assert set(chunk) == {"id", "object", "created", "model", "choices"}  # and no usage unasked
        assert chunk["object"] == "chat.completion.chunk"
        assert (chunk["id"], chunk["created"], chunk["model"]) == (found[0]["id"], 1_700_000_000, "org/tiny")
        assert len(chunk["choices"]) == 1
    assert [chunk["choices"][0]["index"] for chunk in found[:2]] == [0, 1]
    for index in (0, 1):
        role, *rest = choices(found, index)
        assert role["delta"] == {"role": "assistant", "content": "", "refusal": None}
        assert role["finish_reason"] is None
        assert rest[-1] == {"index": index, "delta": {}, "finish_reason": "stop"}
        assert [one["delta"] for one in rest[:-1]] == [{"content": "Hello"}, {"content": " world"}, {"content": "!"}]
        assert {one["finish_reason"] for one in rest[:-1]} == {None}


async def test_roles_come_in_index_order_whichever_choice_is_first(
    http: httpx.AsyncClient, backend: FakeBackend
) -> None:
    backend.script = Script(last_choice_first=True)
    found = await chat(http, stream=True, n=3)
    indexes = [chunk["choices"][0]["index"] for chunk in found[:-1]]
    assert indexes[:4] == [0, 1, 2, 2]


async def test_usage_chunk_is_last(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    found = await chat(http, stream=True, stream_options={"include_usage": True, "include_obfuscation": False, "x": 1})
    plain = await chat(http)
    assert found[-1] == "[DONE]"
    assert found[-2]["choices"] == []
    assert found[-2]["usage"] == plain["usage"]
    assert all(chunk["usage"] is None for chunk in found[:-2])


async def test_continuous_usage_counts_up(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    found = await chat(http, stream=True, stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in found[:-1]]
    assert counts == [0, 1, 2, 3, 3, 3]
    assert {chunk["usage"]["prompt_tokens"] for chunk in found[:-1]} == {5}
    assert all("token_ids" not in choice for choice in choices(found))
    without = await chat(http, stream=True, stream_options={"continuous_usage_stats": True})
    assert all("usage" not in chunk for chunk in without[:-1])


async def test_line_separators_are_escaped(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.script = Script(tokens=(SEPARATORS, "漢字👨‍👩‍👧"), reasoning=SEPARATORS)
    response = await http.post("/v1/chat/completions", json=CHAT | {"stream": True})
    for separator in SEPARATORS[1::2]:
        assert separator.encode() not in response.content
    found = events(response)
    assert text(found) == SEPARATORS + "漢字👨‍👩‍👧"
    assert text(found, key="reasoning") == SEPARATORS


async def test_reasoning_has_both_names(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.script = Script(reasoning="Because.")
    message = (await chat(http))["choices"][0]["message"]
    assert message["reasoning"] == message["reasoning_content"] == "Because."
    assert message["content"] == "Hello world!"
    found = await chat(http, stream=True)
    assert choices(found)[1]["delta"] == {"reasoning": "Because.", "reasoning_content": "Because."}


@pytest.mark.parametrize(("tokens", "content"), [((), None), (("Sure. ",), "Sure. ")])
async def test_tool_calls(
    http: httpx.AsyncClient, backend: FakeBackend, tokens: tuple[str, ...], content: str | None
) -> None:
    backend.script = Script(
        tokens=tokens,
        tool_calls=(("f", '{"x":"1"}'), ("g", "{}")),
        finish=output_pb2.FINISH_REASON_TOOL_CALLS,
    )
    choice = (await chat(http, tools=[F]))["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == content
    assert choice["message"]["tool_calls"] == [
        {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": '{"x":"1"}'}},
        {"id": "call_1", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]
    found = await chat(http, tools=[F], stream=True)
    assert text(found) == (content or "")
    deltas = [one["delta"]["tool_calls"][0] for one in choices(found) if "tool_calls" in one["delta"]]
    assert deltas[0] == {"index": 0, "id": "call_0", "type": "function", "function": {"name": "f", "arguments": ""}}
    assert deltas[1] == {"index": 0, "function": {"arguments": '{"x"'}}
    assert [one["index"] for one in deltas] == [0, 0, 0, 1, 1, 1]
    assert all(one["function"]["arguments"] for one in deltas if "id" not in one)
    assert choices(found)[-1] == {"index": 0, "delta": {}, "finish_reason": "tool_calls"}


@pytest.mark.parametrize("stream", [False, True])
async def test_named_tool_ends_with_stop(http: httpx.AsyncClient, backend: FakeBackend, stream: bool) -> None:
    backend.script = Script(tokens=(), tool_calls=(("f", "{}"),), finish=output_pb2.FINISH_REASON_TOOL_CALLS)
    found = await chat(http, tools=[F], tool_choice={"type": "function", "function": {"name": "f"}}, stream=stream)
    last = choices(found)[-1] if stream else found["choices"][0]
    assert last["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [False, True])
async def test_length_beats_tool_calls(http: httpx.AsyncClient, backend: FakeBackend, stream: bool) -> None:
    backend.script = Script(tokens=(), tool_calls=(("f", '{"x'),), finish=output_pb2.FINISH_REASON_LENGTH)
    found = await chat(http, tools=[F], tool_choice={"type": "function", "function": {"name": "f"}}, stream=stream)
    last = choices(found)[-1] if stream else found["choices"][0]
    assert last["finish_reason"] == "length"
    if not stream:
        assert last["message"]["tool_calls"][0]["function"]["arguments"] == '{"x'


async def test_legacy_functions(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.script = Script(tokens=(), tool_calls=(("f", '{"x":1}'),), finish=output_pb2.FINISH_REASON_TOOL_CALLS)
    choice = (await chat(http, functions=[{"name": "f"}]))["choices"][0]
    assert choice["message"]["function_call"] == {"name": "f", "arguments": '{"x":1}'}
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "function_call"
    found = await chat(http, functions=[{"name": "f"}], stream=True)
    calls = [one["delta"]["function_call"] for one in choices(found) if "function_call" in one["delta"]]
    assert calls[0] == {"name": "f", "arguments": ""}
    assert "".join(one["arguments"] for one in calls) == '{"x":1}'
    assert choices(found)[-1]["finish_reason"] == "function_call"


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        (output_pb2.FINISH_REASON_STOP, "stop"),
        (output_pb2.FINISH_REASON_LENGTH, "length"),
        (output_pb2.FINISH_REASON_CONTENT_FILTER, "content_filter"),
        (output_pb2.FINISH_REASON_TIME_LIMIT, "length"),
        (output_pb2.FINISH_REASON_ABORTED, "length"),
        (output_pb2.FINISH_REASON_REPETITION, "length"),
        (99, "length"),
    ],
)
async def test_finish_reasons(http: httpx.AsyncClient, backend: FakeBackend, reason: int, name: str) -> None:
    backend.script = Script(finish=reason)
    assert (await chat(http))["choices"][0]["finish_reason"] == name
    assert choices(await chat(http, stream=True))[-1]["finish_reason"] == name


@pytest.mark.parametrize(
    ("match", "reason"),
    [
        (output_pb2.StopMatch(stop="END"), "END"),
        (output_pb2.StopMatch(stop_token_id=7), 7),
        (output_pb2.StopMatch(eos=True), None),
    ],
)
async def test_stop_reason(
    http: httpx.AsyncClient, backend: FakeBackend, match: output_pb2.StopMatch, reason: str | int | None
) -> None:
    backend.script = Script(stop_match=match)
    plain, last = (await chat(http))["choices"][0], choices(await chat(http, stream=True))[-1]
    if reason is None:
        assert "stop_reason" not in plain
        assert "stop_reason" not in last
    else:
        assert plain["stop_reason"] == last["stop_reason"] == reason


async def test_logprobs(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.script = Script(tokens=("é",))
    entry = {
        "token": "é",
        "logprob": -0.5,
        "bytes": [195, 169],
        "top_logprobs": [{"token": "t0", "logprob": -1.0, "bytes": [116, 48]}],
    }
    asked = {"logprobs": True, "top_logprobs": 1}
    assert (await chat(http, **asked))["choices"][0]["logprobs"] == {"content": [entry], "refusal": None}
    found = choices(await chat(http, stream=True, **asked))
    assert [one["logprobs"] for one in found] == [None, {"content": [entry], "refusal": None}, None]


@pytest.mark.parametrize("value", [float("-inf"), float("nan"), -20_000.0])
@pytest.mark.parametrize("stream", [False, True])
async def test_logprobs_are_finite(http: httpx.AsyncClient, backend: FakeBackend, value: float, stream: bool) -> None:
    backend.script = Script(logprob=value)
    response = await http.post("/v1/chat/completions", json=CHAT | {"logprobs": True, "stream": stream})
    first = choices(events(response))[1] if stream else response.json()["choices"][0]
    assert first["logprobs"]["content"][0]["logprob"] == -9999.0


async def test_logprobs_of_a_delta_without_text(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.script = Script(tokens=("", "é"))
    found = choices(await chat(http, stream=True, logprobs=True))
    assert [len(one["logprobs"]["content"]) for one in found if one["logprobs"]] == [1, 1]
    assert found[1]["delta"] == {"content": ""}
    plain = choices(await chat(http, stream=True))
    assert [one["delta"] for one in plain[1:]] == [{"content": "é"}, {}]


async def test_token_ids(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    reply = await chat(http, return_token_ids=True)
    assert reply["prompt_token_ids"] == [0, 1, 2, 3, 4]
    assert reply["choices"][0]["token_ids"] == [100, 101, 102]
    found = await chat(http, return_token_ids=True, stream=True)
    assert found[0]["prompt_token_ids"] == [0, 1, 2, 3, 4]
    assert [one["token_ids"] for one in choices(found)[1:-1]] == [[100], [101], [102]]


async def test_prompt_logprobs(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    assert (await chat(http, prompt_logprobs=1))["prompt_logprobs"] == [
        None,
        {
            "1": {"logprob": -1.0, "rank": None, "decoded_token": " it"},
            "9": {"logprob": -0.25, "rank": 1, "decoded_token": " no"},
        },
    ]
    response = await http.post("/v1/chat/completions", json=CHAT | {"prompt_logprobs": 1, "stream": True})
    assert check_envelope(response)["param"] == "prompt_logprobs"


async def test_service_tier_only_where_asked(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    assert (await chat(http, service_tier="auto"))["service_tier"] == "default"
    assert "service_tier" not in await chat(http)
    found = await chat(http, service_tier="default", stream=True)
    assert {chunk["service_tier"] for chunk in found[:-1]} == {"default"}


async def test_adapter_name_is_the_model(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    assert (await chat(http, model="org/tiny:poet"))["model"] == "org/tiny:poet"
    found = await chat(http, model="org/tiny:poet", stream=True)
    assert {chunk["model"] for chunk in found[:-1]} == {"org/tiny:poet"}


async def test_keep_alive_comments_before_the_first_token(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    gate = asyncio.Event()
    backend.script = Script(gate=gate)
    comments = 0
    data: list[str] = []
    async with http.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as response:
        async for line in response.aiter_lines():
            if line == ": keep-alive":
                comments += 1
                if comments == 3:
                    gate.set()
            elif line:
                data.append(line)
    assert comments >= 3
    assert data[-1] == "data: [DONE]"
    assert json.loads(data[0].removeprefix("data: "))["choices"][0]["delta"]["role"] == "assistant"


async def test_keep_alive_comments_between_tokens(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    gate = asyncio.Event()
    backend.script = Script(gate=gate, gate_after=1)
    async with http.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as response:
        lines: list[str] = []
        async for line in response.aiter_lines():
            lines.append(line)
            if line == ": keep-alive":
                gate.set()
    assert lines.index(": keep-alive") == next(i for i, one in enumerate(lines) if "Hello" in one) + 2
    assert "data: [DONE]" in lines


async def test_an_error_after_comments_is_an_event(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    gate = asyncio.Event()
    backend.script = Script(gate=gate, raises=RuntimeError("secret"), raise_after=0)
    backend.script.raise_after = 1
    backend.script.tokens = ("a", "b")
    lines: list[str] = []
    async with http.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as response:
        async for line in response.aiter_lines():
            lines.append(line)
            if line == ": keep-alive":
                gate.set()
    assert json.loads([one for one in lines if one.startswith("data")][-1][6:])["error"]["code"] == "internal_error"
