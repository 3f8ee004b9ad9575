from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest
from tests.rest.fake_backend import FakeBackend, Script
from tests.rest.sse import check_envelope

from tokenwire.v1 import chat_pb2, output_pb2
from tokenwire_server.errors import StatusError

HI: dict[str, Any] = {"model": "org/tiny", "input": "hi"}
TOOL: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}
SCRIPTS = {
    "text": Script(),
    "reasoning": Script(reasoning="hm"),
    "tools": Script(tokens=("Sure.",), tool_calls=(("f", '{"x":1}'), ("f", "{}")), finish=3),
    "only tools": Script(tokens=(), tool_calls=(("f", "{}"),), finish=3),
    "cut": Script(finish=output_pb2.FINISH_REASON_LENGTH),
    "filtered": Script(finish=output_pb2.FINISH_REASON_CONTENT_FILTER),
    "nothing": Script(tokens=()),
}


def frames(response: httpx.Response) -> list[tuple[str, dict[str, Any]]]:
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    found = []
    for frame in response.text.split("\n\n")[:-1]:
        event, data = frame.split("\n")
        found.append((event.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    assert all(kind == data["type"] for kind, data in found)
    assert [data["sequence_number"] for _, data in found] == list(range(len(found)))
    return found


async def test_plain(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    response = await http.post("/v1/responses", json=HI, headers={"x-request-id": "r1"})
    reply = response.json()
    assert reply.pop("output") == [
        {
            "id": "msg_r1_0",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hello world!", "annotations": [], "logprobs": []}],
        }
    ]
    assert reply.pop("usage") == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 8,
    }
    assert reply == {
        "id": "resp_r1",
        "object": "response",
        "created_at": 1_700_000_000,
        "completed_at": 1_700_000_000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "org/tiny",
        "store": False,
        "background": False,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "service_tier": "default",
        "reasoning": {"effort": None, "summary": None},
        "temperature": 1.0,
        "top_p": 1.0,
        "top_logprobs": 0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "truncation": "disabled",
    }


@pytest.mark.parametrize("name", SCRIPTS)
async def test_stream_ends_as_the_plain_reply(http: httpx.AsyncClient, backend: FakeBackend, name: str) -> None:
    backend.script = SCRIPTS[name]
    headers = {"x-request-id": "r1"}
    plain = (await http.post("/v1/responses", json=HI, headers=headers)).json()
    found = frames(await http.post("/v1/responses", json=HI | {"stream": True}, headers=headers))
    assert [kind for kind, _ in found[:2]] == ["response.created", "response.in_progress"]
    assert "usage" not in found[0][1]["response"]
    assert found[-1][0] == f"response.{plain['status']}"
    assert found[-1][1]["response"] == plain
    done = [data["item"] for kind, data in found if kind == "response.output_item.done"]
    assert done == plain["output"]


async def test_order_of_events(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.script = Script(tokens=("a",), reasoning="hm", tool_calls=(("f", '{"x":1}'),), finish=3)
    found = frames(await http.post("/v1/responses", json=HI | {"stream": True}))
    assert [kind.removeprefix("response.") for kind, _ in found] == [
        *("created", "in_progress"),
        *("output_item.added", "content_part.added", "reasoning_text.delta"),
        *("reasoning_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done", "completed"),
    ]
    added = [data["item"] for kind, data in found if kind == "response.output_item.added"]
    assert [item["status"] for item in added] == ["in_progress"] * 3
    assert (added[1]["content"], added[2]["arguments"]) == ([], "")


@pytest.mark.parametrize(("name", "reason"), [("cut", "max_output_tokens"), ("filtered", "content_filter")])
async def test_incomplete(http: httpx.AsyncClient, backend: FakeBackend, name: str, reason: str) -> None:
    backend.script = SCRIPTS[name]
    reply = (await http.post("/v1/responses", json=HI)).json()
    assert (reply["status"], reply["incomplete_details"]) == ("incomplete", {"reason": reason})
    assert reply["output"][-1]["status"] == "incomplete"


async def test_conversation(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    items = [
        {"role": "developer", "content": "d"},
        {"role": "user", "content": [{"type": "input_text", "text": "u"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "why"}]},
        {"type": "message", "role": "assistant", "id": "m", "content": [{"type": "output_text", "text": "a"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"x":1}'},
        {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "2"}]},
        {"role": "assistant", "content": "b"},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "end"},
    ]
    body = HI | {"instructions": "be brief", "input": items}
    assert (await http.post("/v1/responses", json=body)).status_code == 200
    found = backend.requests[0].messages
    roles = [chat_pb2.Role.Name(one.role)[5:].lower() for one in found]
    assert roles == ["system", "developer", "user", "assistant", "tool", "tool", "assistant", "assistant", "user"]
    turn = found[3]
    assert (turn.reasoning, turn.content[0].text, [one.id for one in turn.tool_calls]) == ("why", "a", ["c1", "c2"])
    assert [(one.tool_call_id, one.content[0].text) for one in found[4:6]] == [("c1", "1"), ("c2", "2")]


async def test_parameters(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    body = HI | {
        "max_output_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "seed": 1,
        "stop": "x",
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["message.output_text.logprobs"],
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"b": 1, "a": 2}}, "verbosity": "low"},
        "tools": [TOOL],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        "parallel_tool_calls": False,
        "metadata": {"a": "b"},
        "user": "u",
        "store": False,
        "top_logprobs": 2,
        "service_tier": "auto",
    }
    reply = (await http.post("/v1/responses", json=body)).json()
    request = backend.requests[0]
    assert (request.sampling.max_tokens, request.sampling.top_k, list(request.sampling.stop)) == (7, 3, ["x"])
    assert (request.sampling.temperature, request.sampling.top_p, request.sampling.seed) == (0.5, 0.9, 1)
    assert request.reasoning.effort == chat_pb2.ReasoningOptions.EFFORT_LOW
    assert request.structured_output.json_schema == '{"b":1,"a":2}'
    assert (request.tools[0].function.name, request.tools[0].function.strict) == ("f", True)
    assert (list(request.tool_choice.allowed.functions), request.parallel_tool_calls) == (["f"], False)
    assert request.output.logprobs == 2
    assert (reply["metadata"], reply["top_logprobs"], reply["temperature"]) == ({"a": "b"}, 2, 0.5)
    assert reply["tools"] == [{**TOOL, "description": None}]
    assert len(reply["output"][0]["content"][0]["logprobs"]) == 3


async def test_null_is_absent(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    names = (
        *("background", "truncation", "tools", "tool_choice", "service_tier", "store", "previous_response_id"),
        *("instructions", "include", "metadata", "reasoning", "text", "temperature", "top_p", "stream", "prompt"),
        *("max_output_tokens", "parallel_tool_calls", "top_logprobs", "conversation", "user", "stream_options"),
    )
    plain = await http.post("/v1/responses", json=HI, headers={"x-request-id": "r"})
    nulls = await http.post("/v1/responses", json=HI | dict.fromkeys(names), headers={"x-request-id": "r"})
    assert nulls.json() == plain.json()


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"previous_response_id": "resp_1"}, "previous_response_id", "unsupported_parameter"),
    ({"store": True}, "store", "unsupported_parameter"),
    ({"background": True}, "background", "unsupported_parameter"),
    ({"conversation": "c"}, "conversation", "unsupported_parameter"),
    ({"prompt": {"id": "p"}}, "prompt", "unsupported_parameter"),
    ({"truncation": "auto"}, "truncation", "unsupported_parameter"),
    ({"max_tokens": 3}, "max_tokens", "unsupported_parameter"),
    ({"response_format": {"type": "text"}}, "response_format", "unsupported_parameter"),
    ({"n": 2}, "n", "unsupported_parameter"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "unsupported_parameter"),
    ({"tools": [{"type": "function"}]}, "tools[0].name", "missing_required_parameter"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice", "invalid_value"),
    ({"tool_choice": {"type": "web_search"}}, "tool_choice", "unsupported_parameter"),
    ({"include": ["other"]}, "include", "invalid_value"),
    ({"input": None}, "input", "missing_required_parameter"),
    ({"input": []}, "input", "empty_array"),
    ({"input": ""}, "input", "invalid_value"),
    ({"input": 3}, "input", "invalid_type"),
    ({"input": [{"role": "bogus", "content": "x"}]}, "input[0].role", "invalid_value"),
    ({"input": [{"role": "user"}]}, "input[0].content", "missing_required_parameter"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type", "unsupported_parameter"),
    ({"input": [{"type": "computer_call"}]}, "input[0].type", "unsupported_parameter"),
    ({"input": [{"role": "user", "content": [{"type": "x"}]}]}, "input[0].content[0].type", "invalid_value"),
    ({"max_output_tokens": 0}, "max_output_tokens", "integer_below_min_value"),
    ({"temperature": 3}, "temperature", "decimal_above_max_value"),
    ({"top_logprobs": 21}, "top_logprobs", "integer_above_max_value"),
    ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema", "missing_required_parameter"),
    ({"text": {"format": {"type": "yaml"}}}, "text.format.type", "invalid_value"),
    ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "invalid_value"),
    ({"stream_options": {"include_obfuscation": False}}, "stream_options", "invalid_value"),
    ({"tools": [{**TOOL, "name": "a b"}]}, "tools[0].name", "invalid_value"),  # the contract's own rule
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("extra", "param", "code"), REFUSED)
async def test_refused_by_name(
    http: httpx.AsyncClient, backend: FakeBackend, extra: dict[str, Any], param: str, code: str, stream: bool
) -> None:
    if stream and "stream_options" in extra:
        return
    response = await http.post("/v1/responses", json=HI | extra | {"stream": stream})
    assert response.status_code == 400
    error = check_envelope(response)
    assert (error["param"], error["code"]) == (param, code)


async def test_service_errors_name_the_item(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.script = Script(raises=StatusError.unsupported("messages[2].content[0].image", "is not served"))
    items = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    response = await http.post("/v1/responses", json=HI | {"instructions": "i", "input": items})
    assert check_envelope(response)["param"] == "input[1]"
    backend.script = Script(raises=StatusError.field("sampling.max_tokens", "must be less", "ABOVE_MAX"))
    response = await http.post("/v1/responses", json=HI)
    assert check_envelope(response)["param"] == "max_output_tokens"


async def test_context_length_names_the_input(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    response = await http.post("/v1/responses", json=HI | {"input": "word " * 5000})
    error = check_envelope(response)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
    assert "maximum context length is" in error["message"]


async def test_error_in_mid_stream(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.script = Script(raises=RuntimeError("secret-token-123"), raise_after=2)
    response = await http.post("/v1/responses", json=HI | {"stream": True})
    kind, last = frames(response)[-1]
    assert kind == "error"
    assert set(last) == {"type", "code", "message", "param", "sequence_number"}
    assert last["code"] == "internal_error"
    assert "secret" not in response.text


async def test_unknown_model(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    response = await http.post("/v1/responses", json=HI | {"model": "nope"})
    assert (response.status_code, check_envelope(response)["code"]) == (404, "model_not_found")


async def test_sdk(sdk: openai.AsyncOpenAI, backend: FakeBackend) -> None:
    reply = await sdk.responses.create(model="org/tiny", input="hi")
    assert (reply.output_text, reply.status) == ("Hello world!", "completed")
    backend.script = Script(tokens=("Sure.",), reasoning="hm", tool_calls=(("f", '{"x":1}'),), finish=3)
    async with sdk.responses.stream(model="org/tiny", input="hi") as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert kinds[-1] == "response.completed"
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert final.output_text == "Sure."
