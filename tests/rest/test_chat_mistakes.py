from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from tests.rest.fake_backend import FakeBackend
from tests.rest.sse import check_envelope

HI = {"role": "user", "content": "hi"}
F = {"type": "function", "function": {"name": "f"}}
MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    ({"messages": None}, "messages", "missing_required_parameter"),
    ({"messages": []}, "messages", "empty_array"),
    ({"messages": "s"}, "messages", "invalid_type"),
    ({"messages": [1]}, "messages[0]", "invalid_type"),
    ({"messages": [{}]}, "messages[0].role", "missing_required_parameter"),
    ({"messages": [{"role": 1, "content": "x"}]}, "messages[0].role", "invalid_type"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
    ({"messages": [HI, {"role": "user", "content": 1}]}, "messages[1].content", "invalid_type"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content", "empty_array"),
    ({"messages": [{"role": "user", "content": [{}]}]}, "messages[0].content[0].type", "missing_required_parameter"),
    ({"messages": [{"role": "user", "content": [{"type": "x"}]}]}, "messages[0].content[0].type", "invalid_value"),
    ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]", "invalid_type"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "ftp://x"}}]}]},
        "messages[0].content[0].image_url",
        "invalid_value",
    ),
    ({"messages": [{"role": "assistant"}]}, "messages[0].content", "missing_required_parameter"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}]},
        "messages[0].tool_calls[0].function.arguments",
        "invalid_type",
    ),
    ({"max_tokens": -1}, "max_tokens", "integer_below_min_value"),
    ({"max_tokens": 0}, "max_tokens", "integer_below_min_value"),
    ({"max_tokens": 2**31}, "max_tokens", "integer_above_max_value"),
    ({"max_tokens": "5"}, "max_tokens", "invalid_type"),
    ({"max_tokens": True}, "max_tokens", "invalid_type"),
    ({"max_tokens": 1.5}, "max_tokens", "invalid_type"),
    ({"max_completion_tokens": 0}, "max_completion_tokens", "integer_below_min_value"),
    ({"temperature": -0.1}, "temperature", "decimal_below_min_value"),
    ({"temperature": 2.1}, "temperature", "decimal_above_max_value"),
    ({"temperature": "hot"}, "temperature", "invalid_type"),
    ({"temperature": True}, "temperature", "invalid_type"),
    ({"top_p": 0}, "top_p", "decimal_below_min_value"),
    ({"top_k": -2}, "top_k", "integer_below_min_value"),
    ({"n": 0}, "n", "integer_below_min_value"),
    ({"n": 129}, "n", "integer_above_max_value"),
    ({"seed": 2**63}, "seed", "integer_above_max_value"),
    ({"seed": 10**30}, "seed", "integer_above_max_value"),
    ({"seed": -(2**63) - 1}, "seed", "integer_below_min_value"),
    ({"seed": -(10**30)}, "seed", "integer_below_min_value"),
    ({"min_tokens": 5, "max_tokens": 2}, "min_tokens", "integer_above_max_value"),
    ({"stop": ["a", "b", "c", "d", "e"]}, "stop", "array_above_max_length"),
    ({"stop": ""}, "stop", "empty_string"),
    ({"stop": [1]}, "stop[0]", "invalid_type"),
    ({"stop": 1}, "stop", "invalid_type"),
    ({"logit_bias": {"-1": 1}}, "logit_bias", "invalid_key"),
    ({"logit_bias": {"abc": 1}}, "logit_bias", "invalid_key"),
    ({"logit_bias": {"5": 101}}, "logit_bias", "decimal_above_max_value"),
    ({"logit_bias": {"5": "1"}}, "logit_bias", "invalid_type"),
    ({"logit_bias": {str(i): 1 for i in range(1025)}}, "logit_bias", "object_above_max_properties"),
    ({"logprobs": 1}, "logprobs", "invalid_type"),
    ({"top_logprobs": 2}, "top_logprobs", "invalid_value"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "integer_above_max_value"),
    ({"top_logprobs": -1}, "top_logprobs", "integer_below_min_value"),
    ({"prompt_logprobs": -1}, "prompt_logprobs", "integer_below_min_value"),
    ({"stop_token_ids": [-1]}, "stop_token_ids", "integer_below_min_value"),
    ({"allowed_token_ids": ["a"]}, "allowed_token_ids", "invalid_type"),
    ({"stream": "yes"}, "stream", "invalid_type"),
    ({"response_format": {}}, "response_format.type", "missing_required_parameter"),
    ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing_required_parameter"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        "response_format.json_schema.schema",
        "missing_required_parameter",
    ),
    ({"structured_outputs": {"regex": "a", "grammar": "b"}}, "structured_outputs", "invalid_value"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "empty_array"),
    ({"structured_outputs": {"regex": ""}}, "structured_outputs.regex", "empty_string"),
    ({"structured_outputs": {"regex": "a"}, "guided_regex": "b"}, "guided_regex", "invalid_value"),
    ({"tools": [{}]}, "tools[0].type", "missing_required_parameter"),
    ({"tools": [{"type": "custom"}]}, "tools[0].type", "unsupported_parameter"),
    ({"tools": [{"type": "function"}]}, "tools[0].function", "missing_required_parameter"),
    ({"tools": [F], "tool_choice": "maybe"}, "tool_choice", "invalid_value"),
    ({"tools": [F], "tool_choice": 1}, "tool_choice", "invalid_type"),
    ({"tools": [F], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice", "invalid_value"),
    ({"tools": [F], "tool_choice": {"type": "custom"}}, "tool_choice", "unsupported_parameter"),
    ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    ({"tools": [F], "functions": [{"name": "f"}]}, "functions", "invalid_value"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "invalid_value"),
    ({"reasoning_effort": "extreme"}, "reasoning_effort", "invalid_value"),
    ({"service_tier": "gold"}, "service_tier", "invalid_value"),
    ({"request_id": "a b"}, "request_id", "invalid_value"),
    ({"cache_salt": 5}, "cache_salt", "invalid_type"),
    ({"best_of": 1, "n": 2}, "best_of", "integer_below_min_value"),
    ({"chat_template_kwargs": []}, "chat_template_kwargs", "invalid_type"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("body", "param", "code"), MISTAKES, ids=lambda value: json.dumps(value)[:60])
async def test_mistakes(
    http: httpx.AsyncClient, backend: FakeBackend, body: dict[str, Any], param: str, code: str, stream: bool
) -> None:
    whole = {"model": "org/tiny", "messages": [HI], "stream": stream} | body
    response = await http.post("/v1/chat/completions", json=whole)
    assert response.status_code == 400
    error = check_envelope(response)
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)


async def test_the_wrong_keys_of_a_logit_bias_are_named(http: httpx.AsyncClient) -> None:
    bias = {"bad": 1, "5": 1, "-1": 1, "x" * 100: 1}
    response = await http.post("/v1/chat/completions", json={"model": "org/tiny", "messages": [HI], "logit_bias": bias})
    message = check_envelope(response)["message"]
    assert message == f"Invalid key in 'logit_bias': expected token ids, but got 'bad', '-1', '{'x' * 32}'."


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"model": None}, ("you must provide a model parameter", "model", None)),
        (
            {"messages": []},
            (
                "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array"
                " instead.",
                "messages",
                "empty_array",
            ),
        ),
        (
            {"max_tokens": -1},
            (
                "Invalid 'max_tokens': integer below minimum value. Expected a value >= 1, but got -1 instead.",
                "max_tokens",
                "integer_below_min_value",
            ),
        ),
        (
            {"temperature": 3},
            (
                "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3 instead.",
                "temperature",
                "decimal_above_max_value",
            ),
        ),
        (
            {"max_tokens": "x"},
            (
                "Invalid type for 'max_tokens': expected an integer, but got a string instead.",
                "max_tokens",
                "invalid_type",
            ),
        ),
        (
            {"model": "nope"},
            ("The model `nope` does not exist or you do not have access to it.", None, "model_not_found"),
        ),
        (
            {"stream_options": {}},
            (
                "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
                "stream_options",
                "invalid_value",
            ),
        ),
    ],
)
async def test_exact_messages(
    http: httpx.AsyncClient, backend: FakeBackend, body: dict[str, Any], error: tuple[str, str | None, str | None]
) -> None:
    response = await http.post("/v1/chat/completions", json={"model": "org/tiny", "messages": [HI]} | body)
    found = check_envelope(response)
    assert (found["message"], found["param"], found["code"]) == error


async def test_lone_surrogate_in_a_name_is_refused(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    raw = b'{"model":"org/tiny","messages":[{"role":"user","content":"hi"}],"stop":["\\udfff"]}'
    response = await http.post("/v1/chat/completions", content=raw, headers={"content-type": "application/json"})
    assert response.status_code == 400
    check_envelope(response)
