from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.rest.fake_backend import FakeBackend, Script

from tokenwire.v1 import chat_pb2, output_pb2
from tokenwire_server.errors import StatusError

HI: dict[str, Any] = {"model": "org/tiny", "max_tokens": 64, "messages": [{"role": "user", "content": "hi"}]}
TOOL: dict[str, Any] = {"name": "f", "description": "F.", "input_schema": {"type": "object"}}
FINISH_TOOLS: Any = output_pb2.FINISH_REASON_TOOL_CALLS


def frames(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    found = []
    for frame in response.text.split("\n\n")[:-1]:
        event, data = frame.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert event == f"event: {found[-1]['type']}"
    return found


def error_of(response: httpx.Response) -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    assert set(body) == {"type", "error", "request_id"}
    assert (body["type"], body["request_id"]) == ("error", response.headers["x-request-id"])
    error: dict[str, Any] = body["error"]
    assert set(error) == {"type", "message"}
    return error


async def test_plain(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    response = await http.post("/v1/messages", json=HI, headers={"x-request-id": "r1"})
    assert response.json() == {
        "id": "msg_r1",
        "type": "message",
        "role": "assistant",
        "model": "org/tiny",
        "content": [{"type": "text", "text": "Hello world!"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 3,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 2,
            "output_tokens": 3,
        },
    }


@pytest.mark.parametrize(
    ("script", "ending"),
    [
        (Script(finish=output_pb2.FINISH_REASON_LENGTH), ("max_tokens", None)),
        (Script(finish=output_pb2.FINISH_REASON_CONTENT_FILTER), ("refusal", None)),
        (Script(stop_match=output_pb2.StopMatch(stop="END")), ("stop_sequence", "END")),
        (Script(tool_calls=(("f", "{}"),), finish=FINISH_TOOLS), ("tool_use", None)),
    ],
)
async def test_stop_reasons(
    http: httpx.AsyncClient, backend: FakeBackend, script: Script, ending: tuple[str, str | None]
) -> None:
    backend.script = script
    reply = (await http.post("/v1/messages", json=HI)).json()
    assert (reply["stop_reason"], reply["stop_sequence"]) == ending
    last = frames(await http.post("/v1/messages", json=HI | {"stream": True}))[-2]
    assert (last["delta"]["stop_reason"], last["delta"]["stop_sequence"]) == ending


async def test_stream(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.script = Script(tokens=("a",), reasoning="hm", tool_calls=(("f", '{"x":1}'),), finish=FINISH_TOOLS)
    found = frames(await http.post("/v1/messages", json=HI | {"stream": True}))
    kinds = [one["type"].removeprefix("content_block_") for one in found]
    assert kinds == [
        "message_start",
        *("start", "delta", "stop"),
        *("start", "delta", "stop"),
        *("start", "delta", "delta", "stop"),
        *("message_delta", "message_stop"),
    ]
    assert [one["index"] for one in found[1:-2]] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    blocks = [one["content_block"]["type"] for one in found if one["type"] == "content_block_start"]
    assert blocks == ["thinking", "text", "tool_use"]
    assert "".join(one["delta"].get("partial_json", "") for one in found[7:10] if "delta" in one) == '{"x":1}'
    assert found[0]["message"]["usage"]["output_tokens"] == 0
    assert found[-2]["usage"]["output_tokens"] == 1


async def test_conversation(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "u", "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "why", "signature": "s"},
                {"type": "text", "text": "a"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"b": 1, "a": 2}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "r"}]},
                {"type": "tool_result", "tool_use_id": "t2", "is_error": True, "content": "bad"},
                {"type": "text", "text": "go on"},
            ],
        },
    ]
    system = [{"type": "text", "text": "s1"}, {"type": "text", "text": "s2"}]
    assert (await http.post("/v1/messages", json=HI | {"system": system, "messages": messages})).status_code == 200
    found = backend.requests[0].messages
    assert [chat_pb2.Role.Name(one.role)[5:] for one in found] == [
        *("SYSTEM", "USER", "ASSISTANT", "TOOL", "TOOL", "USER"),
    ]
    assert found[0].content[0].text == "s1\n\ns2"
    assert (found[2].reasoning, found[2].tool_calls[0].arguments) == ("why", '{"b":1,"a":2}')
    assert "".join(part.text for part in found[4].content) == "Error: bad"
    assert not backend.requests[0].template.continue_final_message


async def test_parameters(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    body = HI | {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "stop_sequences": ["x"],
        "metadata": {"user_id": "u"},
        "tools": [TOOL],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 9},
        "service_tier": "auto",
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        "messages": [*HI["messages"], {"role": "assistant", "content": "The"}],
    }
    assert (await http.post("/v1/messages", json=body)).status_code == 200
    request = backend.requests[0]
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_k, list(sampling.stop)) == (64, 0.5, 3, ["x"])
    assert (request.reasoning.enabled, request.reasoning.max_tokens) == (True, 9)
    assert request.reasoning.effort == chat_pb2.ReasoningOptions.EFFORT_LOW
    assert request.structured_output.json_schema == '{"type":"object"}'
    assert request.tool_choice.mode == chat_pb2.ToolChoice.MODE_AUTO
    assert request.parallel_tool_calls is False
    assert request.tools[0].function.parameters == '{"type":"object"}'
    assert request.template.continue_final_message


async def test_tool_choices(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    for choice in ({"type": "any"}, {"type": "tool", "name": "f"}, {"type": "none"}):
        await http.post("/v1/messages", json=HI | {"tools": [TOOL], "tool_choice": choice})
    found = [request.tool_choice for request in backend.requests]
    assert found[0].mode == chat_pb2.ToolChoice.MODE_REQUIRED
    assert found[1].function == "f"
    assert found[2].mode == chat_pb2.ToolChoice.MODE_NONE


@pytest.mark.parametrize(
    ("extra", "word"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": "bogus", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "search_result"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "tool_use_id"),
        ({"temperature": 1.5}, "temperature"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"tools": [{"type": "web_search_20250305", "name": "w"}]}, "tools[0].type"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice"),
        ({"container": "c"}, "container"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management.edits[0].type"),
        ({"system": 3}, "system"),
        ({"thinking": {"type": "maybe"}}, "thinking.type"),
        ({"tools": [TOOL | {"name": "a b"}]}, "tools[0].name"),
    ],
)
async def test_refused_by_name(http: httpx.AsyncClient, backend: FakeBackend, extra: dict[str, Any], word: str) -> None:
    response = await http.post("/v1/messages", json=HI | extra)
    assert response.status_code == 400
    error = error_of(response)
    assert error["type"] == "invalid_request_error"
    assert word in error["message"]


@pytest.mark.parametrize(
    ("reason", "status", "kind"),
    [
        ("QUEUE_FULL", 429, "rate_limit_error"),
        ("DRAINING", 503, "overloaded_error"),
        ("MODEL_NOT_FOUND", 404, "not_found_error"),
        ("INTERNAL", 500, "api_error"),
        ("DEADLINE_EXCEEDED", 504, "timeout_error"),
    ],
)
async def test_errors(http: httpx.AsyncClient, backend: FakeBackend, reason: str, status: int, kind: str) -> None:
    backend.script = Script(raises=StatusError.of(reason, "No."))
    response = await http.post("/v1/messages", json=HI)
    assert (response.status_code, error_of(response)["type"]) == (status, kind)
    backend.script = Script(raises=StatusError.of(reason, "No."), raise_after=1)
    last = frames(await http.post("/v1/messages", json=HI | {"stream": True}))[-1]
    assert (last["type"], last["error"]["type"]) == ("error", kind)


async def test_context_length_in_the_words_that_clients_know(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    message = {"role": "user", "content": "word " * 5000}
    response = await http.post("/v1/messages", json=HI | {"messages": [message]})
    assert error_of(response)["message"].startswith("prompt is too long: ")


@pytest.mark.parametrize(("effort", "name"), [("low", "EFFORT_LOW"), ("xhigh", "EFFORT_HIGH"), ("max", "EFFORT_HIGH")])
async def test_efforts(http: httpx.AsyncClient, backend: FakeBackend, effort: str, name: str) -> None:
    await http.post("/v1/messages", json=HI | {"output_config": {"effort": effort}})
    assert backend.requests[0].reasoning.effort == chat_pb2.ReasoningOptions.Effort.Value(name)


async def test_arguments_that_are_cut_are_not_lost(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.script = Script(tokens=(), tool_calls=(("f", '{"x'), ("f", "[1]")), finish=output_pb2.FINISH_REASON_LENGTH)
    reply = (await http.post("/v1/messages", json=HI)).json()
    assert [block["input"] for block in reply["content"]] == [{"_raw": '{"x'}, {"_raw": "[1]"}]
    assert reply["stop_reason"] == "max_tokens"


async def test_errors_before_the_route(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    assert error_of(await http.get("/v1/messages"))["type"] == "invalid_request_error"
    assert error_of(await http.post("/v1/messages/what"))["type"] == "not_found_error"
    assert error_of(await http.post("/v1/messages", content=b"{"))["type"] == "invalid_request_error"
    backend.keys = frozenset({"k"})
    assert error_of(await http.post("/v1/messages", json=HI))["type"] == "authentication_error"
    for headers in ({"x-api-key": "k"}, {"authorization": "Bearer k"}):
        assert (await http.post("/v1/messages", json=HI, headers=headers)).status_code == 200
    assert (await http.get("/v1/models", headers={"x-api-key": "k"})).status_code == 401


async def test_count_tokens(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    body = {"model": "org/tiny", "system": "a b", "messages": [{"role": "user", "content": "c d e"}], "tools": [TOOL]}
    reply = await http.post("/v1/messages/count_tokens", json=body)
    assert reply.json() == {"input_tokens": 5}
    assert backend.requests[0].tools[0].function.name == "f"


@pytest.fixture
async def client(port: int) -> AsyncIterator[Any]:
    anthropic = pytest.importorskip("anthropic")
    inner = anthropic.DefaultAsyncHttpxClient(trust_env=False)
    url = f"http://127.0.0.1:{port}"
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0, http_client=inner) as found:
        yield found


async def test_sdk(client: Any, backend: FakeBackend) -> None:
    reply = await client.messages.create(**HI)
    assert reply.content[0].text == "Hello world!"
    backend.script = Script(tokens=("a",), reasoning="hm", tool_calls=(("f", '{"x":1}'),), finish=FINISH_TOOLS)
    async with client.messages.stream(**HI) as stream:
        final = await stream.get_final_message()
    assert [block.type for block in final.content] == ["thinking", "text", "tool_use"]
    assert (final.content[2].input, final.stop_reason) == ({"x": 1}, "tool_use")
    assert (await client.messages.count_tokens(model="org/tiny", messages=HI["messages"])).input_tokens == 1


async def test_sdk_errors(client: Any, backend: FakeBackend) -> None:
    import anthropic

    with pytest.raises(anthropic.NotFoundError) as caught:
        await client.messages.create(**(HI | {"model": "nope"}))
    assert caught.value.type == "not_found_error"
