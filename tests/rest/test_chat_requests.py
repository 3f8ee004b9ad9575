from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest
from google.protobuf import json_format
from tests.rest.fake_backend import FakeBackend
from tests.rest.sse import check_envelope

from tokenwire.v1 import chat_pb2
from tokenwire_server.rest.openai.chat import read_chat

HI = {"role": "user", "content": "hi"}
F = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": {"b": 1, "a": 1.0}, "strict": True},
}


def translated(**body: Any) -> dict[str, Any]:
    request = read_chat({"model": "org/tiny", "messages": [HI]} | body).request
    return json_format.MessageToDict(request, preserving_proto_field_name=True)


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("max_tokens", 5),
        ("max_completion_tokens", 5),
        ("min_tokens", 5),
        ("temperature", 0),
        ("top_p", 0.5),
        ("top_k", -1),
        ("min_p", 0.25),
        ("presence_penalty", -2),
        ("frequency_penalty", 2),
        ("repetition_penalty", 1.5),
        ("n", 2),
        ("seed", -1),
        ("seed", 2**53),
        ("seed", -(2**63)),
        ("stop_token_ids", [1, 2]),
        ("allowed_token_ids", [3]),
        ("bad_words", ["x"]),
        ("include_stop_str_in_output", True),
        ("ignore_eos", True),
        ("truncate_prompt_tokens", 7),
        ("skip_special_tokens", False),
        ("spaces_between_special_tokens", False),
    ],
)
def test_sampling_keeps_its_name(param: str, value: Any) -> None:
    name = "max_tokens" if param == "max_completion_tokens" else param
    sampling = translated(**{param: value})["sampling"]
    expected = str(value) if param == "seed" else value  # proto JSON writes int64 as text
    assert sampling == {name: expected}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"stop": "a"}, {"sampling": {"stop": ["a"]}}),
        ({"stop": ["a", "b"]}, {"sampling": {"stop": ["a", "b"]}}),
        ({"logit_bias": {"5": -100, "6": 1.5}}, {"sampling": {"logit_bias": {"5": -100, "6": 1.5}}}),
        ({"max_tokens": 4, "max_completion_tokens": 6}, {"sampling": {"max_tokens": 6}}),
        ({"max_tokens": 4.0}, {"sampling": {"max_tokens": 4}}),
        ({"logprobs": True}, {"output": {"logprobs": 0}}),
        ({"logprobs": True, "top_logprobs": 20}, {"output": {"logprobs": 20}}),
        ({"logprobs": False, "top_logprobs": 0}, {}),
        ({"prompt_logprobs": 3}, {"output": {"prompt_logprobs": 3}}),
        ({"return_token_ids": True, "echo": True}, {"output": {"return_token_ids": True, "echo": True}}),
        ({"stream_interval": 4}, {"output": {"stream_interval": 4}}),
        ({"priority": -3}, {"priority": -3}),
        ({"cache_salt": "s"}, {"cache_salt": "s"}),
        ({"session_id": "s"}, {"session_id": "s"}),
        ({"request_id": "r-1"}, {"request_id": "r-1"}),
        ({"reasoning_effort": "low"}, {"reasoning": {"effort": "EFFORT_LOW"}}),
        ({"thinking_token_budget": 0}, {"reasoning": {"max_tokens": 0}}),
        ({"include_reasoning": False}, {"reasoning": {"include": False}}),
        ({"include_reasoning": True}, {}),
        ({"add_generation_prompt": False}, {"template": {"add_generation_prompt": False}}),
        ({"continue_final_message": True}, {"template": {"continue_final_message": True}}),
        ({"chat_template_kwargs": {"enable_thinking": False}}, {"template": {"kwargs": {"enable_thinking": False}}}),
        ({"response_format": {"type": "text"}}, {}),
        ({"response_format": {"type": "json_object"}}, {"structured_output": {"json_object": True}}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"b": 1, "a": 2.0}}}},
            {"structured_output": {"json_schema": '{"b":1,"a":2.0}'}},
        ),
        (
            {"response_format": {"type": "structural_tag", "format": 1}},
            {"structured_output": {"structural_tag": '{"type":"structural_tag","format":1}'}},
        ),
        ({"structured_outputs": {"json": {"a": 1}}}, {"structured_output": {"json_schema": '{"a":1}'}}),
        ({"structured_outputs": {"json": '{"a": 1}'}}, {"structured_output": {"json_schema": '{"a": 1}'}}),
        ({"structured_outputs": {"regex": "a+"}}, {"structured_output": {"regex": "a+"}}),
        ({"structured_outputs": {"choice": ["a"]}}, {"structured_output": {"choice": {"choices": ["a"]}}}),
        ({"structured_outputs": {"grammar": "g", "regex": None}}, {"structured_output": {"grammar": "g"}}),
        ({"structured_outputs": {"json_object": True}}, {"structured_output": {"json_object": True}}),
        ({"structured_outputs": {"json_object": False}}, {}),
        ({"guided_json": {"a": 1}}, {"structured_output": {"json_schema": '{"a":1}'}}),
        ({"guided_regex": "a"}, {"structured_output": {"regex": "a"}}),
        ({"guided_choice": ["a"]}, {"structured_output": {"choice": {"choices": ["a"]}}}),
        ({"guided_grammar": "g"}, {"structured_output": {"grammar": "g"}}),
        ({"tools": []}, {}),
        ({"stop": []}, {}),
        ({"tool_choice": "none"}, {}),
        ({"parallel_tool_calls": True}, {}),
        ({"best_of": 1, "n": 1}, {"sampling": {"n": 1}}),
        ({"modalities": ["text"], "suffix": "", "length_penalty": 1.0, "use_beam_search": False}, {}),
    ],
)
def test_parameters(body: dict[str, Any], expected: dict[str, Any]) -> None:
    plain = translated()
    assert translated(**body) == plain | expected


def test_null_is_absent() -> None:
    nullable = """max_tokens max_completion_tokens temperature top_p n seed stop logprobs top_logprobs logit_bias
        presence_penalty frequency_penalty response_format structured_outputs tools tool_choice parallel_tool_calls
        functions function_call reasoning_effort stream stream_options user metadata store service_tier modalities
        audio prediction top_k min_p repetition_penalty min_tokens stop_token_ids bad_words allowed_token_ids
        truncate_prompt_tokens priority cache_salt request_id chat_template chat_template_kwargs guided_json
        best_of echo include_reasoning prompt_logprobs"""
    assert translated(**dict.fromkeys(nullable.split())) == translated()


def test_accepted_and_ignored() -> None:
    ignored = {
        "user": "u",
        "metadata": {"a": "b"},
        "store": True,
        "service_tier": "auto",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
        "verbosity": "low",
        "prediction": {"type": "content", "content": "x"},
        "some_future_field": {"x": 1},
    }
    assert translated(**ignored) == translated()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "x"}),
        ("web_search_options", {}),
        ("suffix", "x"),
        ("best_of", 2),
        ("use_beam_search", True),
        ("length_penalty", 0.5),
        ("chat_template", "{{ x }}"),
        ("documents", []),
        ("vllm_xargs", {}),
        ("kv_transfer_params", {}),
        ("mm_processor_kwargs", {}),
        ("guided_decoding_backend", "x"),
        ("guided_whitespace_pattern", "x"),
        ("logprob_token_ids", [1]),
        ("return_tokens_as_token_ids", True),
        ("truncation_side", "right"),
        ("add_special_tokens", True),
        ("repetition_detection", {}),
    ],
)
async def test_refused_by_name(http: httpx.AsyncClient, backend: FakeBackend, name: str, value: Any) -> None:
    response = await http.post("/v1/chat/completions", json={"model": "org/tiny", "messages": [HI], name: value})
    assert response.status_code == 400
    error = check_envelope(response)
    assert (error["code"], error["param"]) == ("unsupported_parameter", name)
    assert not backend.requests


def test_conversation() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "s"},
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "", "name": "ann"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "r",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "1"}]},
        {"role": "assistant", "function_call": {"name": "g", "arguments": "{}"}},
        {"role": "function", "name": "g", "content": "2"},
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "user", "content": "\u0000\u2028", "extra": 1},
    ]
    request = read_chat({"model": "m", "messages": messages}).request
    rows = [
        (chat_pb2.Role.Name(one.role), [part.text for part in one.content], one.tool_call_id)
        for one in request.messages
    ]
    assert rows == [
        ("ROLE_SYSTEM", ["s"], ""),
        ("ROLE_DEVELOPER", ["a", "b"], ""),
        ("ROLE_USER", [""], ""),
        ("ROLE_ASSISTANT", [], ""),
        ("ROLE_TOOL", ["1"], "c1"),
        ("ROLE_ASSISTANT", [], ""),
        ("ROLE_TOOL", ["2"], "call_5"),
        ("ROLE_ASSISTANT", ["no"], ""),
        ("ROLE_USER", ["\u0000\u2028"], ""),
    ]
    assert request.messages[2].name == "ann"
    assert request.messages[3].reasoning == "r"
    assert request.messages[3].tool_calls[0] == chat_pb2.ToolCall(id="c1", name="f", arguments='{"x":1}')
    assert request.messages[5].tool_calls[0] == chat_pb2.ToolCall(id="call_5", name="g", arguments="{}")


def test_media_parts_are_carried() -> None:
    data = base64.b64encode(b"xyz").decode()
    parts = [
        {"type": "image_url", "image_url": {"url": "https://x.example/a.png", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "input_audio", "input_audio": {"data": data, "format": "mp3"}},
        {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{data}", "filename": "a.pdf"}},
    ]
    request = read_chat({"model": "m", "messages": [{"role": "user", "content": parts}]}).request
    content = request.messages[0].content
    assert content[0].image.uri == "https://x.example/a.png"
    assert (content[1].image.data, content[1].image.mime_type) == (b"xyz", "image/png")
    assert (content[2].audio.data, content[2].audio.mime_type) == (b"xyz", "audio/mpeg")
    assert (content[3].file.data, content[3].file.filename) == (b"xyz", "a.pdf")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, {}),
        ({"tool_choice": "none"}, {"tool_choice": {"mode": "MODE_NONE"}}),
        ({"tool_choice": "auto"}, {"tool_choice": {"mode": "MODE_AUTO"}}),
        ({"tool_choice": "required"}, {"tool_choice": {"mode": "MODE_REQUIRED"}}),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, {"tool_choice": {"function": "f"}}),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [F]}}},
            {"tool_choice": {"allowed": {"mode": "MODE_REQUIRED", "functions": ["f"]}}},
        ),
        ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
    ],
)
def test_tools(body: dict[str, Any], expected: dict[str, Any]) -> None:
    found = translated(tools=[F], **body)
    tool = {"function": {"name": "f", "description": "d", "parameters": '{"b":1,"a":1.0}', "strict": True}}
    assert found == translated() | {"tools": [tool]} | expected


def test_functions_are_tools() -> None:
    found = translated(functions=[{"name": "f"}], function_call={"name": "f"})
    assert found["tools"] == [{"function": {"name": "f"}}]
    assert found["tool_choice"] == {"function": "f"}
    assert found["parallel_tool_calls"] is False
