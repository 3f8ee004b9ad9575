from __future__ import annotations

from typing import Any

import grpc
import httpx
import pytest
from google.rpc import code_pb2, status_pb2
from tests.rest.fake_backend import FakeBackend, Script
from tests.rest.sse import check_envelope, choices, events

from tokenwire_server.errors import REASONS, StatusError
from tokenwire_server.rest.openai.errors import from_status
from tokenwire_server.rest.openai.params import ParamNames

CHAT: dict[str, Any] = {"model": "org/tiny", "messages": [{"role": "user", "content": "hi"}]}


def _error_of(reason: str) -> StatusError:
    row = REASONS[reason]
    if row.http_status in (429, 503):
        return StatusError.retry_later(reason, "Come back later.", 2.2)
    if reason == "FEATURE_UNSUPPORTED":
        return StatusError.unsupported("sampling.min_p", "is not served")
    if reason == "INVALID_FIELD":
        return StatusError.field("sampling.temperature", "must be at most 2", "ABOVE_MAX")
    if row.openai_code == "model_not_found":
        return StatusError.not_found(reason, "model", "nope", ["a", "b"])
    return StatusError.of(reason, "Something is wrong.")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reason", list(REASONS))
async def test_each_reason(http: httpx.AsyncClient, backend: FakeBackend, reason: str, stream: bool) -> None:
    backend.script = Script(raises=_error_of(reason))
    response = await http.post("/v1/chat/completions", json=CHAT | {"stream": stream})
    row = REASONS[reason]
    error = check_envelope(response)
    assert (response.status_code, error["type"]) == (row.http_status, row.openai_type)
    if row.openai_code is not None:
        assert error["code"] == row.openai_code
    retry = response.headers.get("retry-after")
    assert retry == ("3" if row.http_status in (429, 503) else None)
    assert ("www-authenticate" in response.headers) == (row.http_status == 401)


@pytest.mark.parametrize("stream", [False, True])
async def test_foreign_exception_text_stays_inside(
    http: httpx.AsyncClient, backend: FakeBackend, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    backend.script = Script(raises=RuntimeError("secret-token-123"))
    response = await http.post("/v1/chat/completions", json=CHAT | {"stream": stream})
    assert response.status_code == 500
    error = check_envelope(response)
    assert (error["type"], error["code"], error["param"]) == ("server_error", "internal_error", None)
    assert response.headers["x-request-id"] in error["message"]
    assert "secret" not in response.text
    assert "secret-token-123" in caplog.text  # the log has it


@pytest.mark.parametrize(
    "error", [StatusError.retry_later("ENGINE_DEAD", "The engine died.", 1), RuntimeError("secret")]
)
async def test_mid_stream_error(http: httpx.AsyncClient, backend: FakeBackend, error: Exception) -> None:
    backend.script = Script(raises=error, raise_after=2)
    response = await http.post("/v1/chat/completions", json=CHAT | {"stream": True})
    assert response.status_code == 200
    found = events(response)
    assert set(found[-1]["error"]) == {"message", "type", "param", "code"}
    assert found[-1]["error"]["type"] == "server_error"
    assert "[DONE]" not in found
    assert "secret" not in response.text
    assert [one["finish_reason"] for one in choices(found)] == [None, None, None]


async def test_stream_without_its_end_is_an_error(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.script = Script(no_end=True)
    found = events(await http.post("/v1/chat/completions", json=CHAT | {"stream": True}))
    assert found[-1]["error"]["code"] == "internal_error"
    assert "[DONE]" not in found


@pytest.mark.parametrize("stream", [False, True])
async def test_context_length(http: httpx.AsyncClient, backend: FakeBackend, stream: bool) -> None:
    meta = {"maxModelLen": "4096", "promptTokens": "5000"}
    backend.script = Script(raises=StatusError.of("CONTEXT_LENGTH_EXCEEDED", "The prompt is too long.", metadata=meta))
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", {"model": "org/tiny", "prompt": "hi"})):
        response = await http.post(path, json=body | {"stream": stream})
        assert response.status_code == 400
        error = check_envelope(response)
        assert (error["code"], error["param"]) == (
            "context_length_exceeded",
            "messages" if "chat" in path else "prompt",
        )
        assert "maximum context length is 4096 tokens" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("field", "body", "param"),
    [
        ("messages", {}, "messages"),  # a template that refuses the conversation
        ("structured_output.regex", {"structured_outputs": {"regex": "["}}, "structured_outputs"),
        ("structured_output.json_schema", {"guided_json": {"type": "objekt"}}, "guided_json"),
        ("sampling.logit_bias[999999]", {"logit_bias": {"999999": 1}}, "logit_bias"),
    ],
)
async def test_what_only_the_engine_can_refuse(
    http: httpx.AsyncClient, backend: FakeBackend, field: str, body: dict[str, Any], param: str, stream: bool
) -> None:
    backend.script = Script(raises=StatusError.field(field, "is not accepted"))
    response = await http.post("/v1/chat/completions", json=CHAT | body | {"stream": stream})
    assert response.status_code == 400
    error = check_envelope(response)
    assert (error["param"], error["code"]) == (param, "invalid_value")


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (code_pb2.INVALID_ARGUMENT, 400),
        (code_pb2.OUT_OF_RANGE, 400),
        (code_pb2.FAILED_PRECONDITION, 400),
        (code_pb2.NOT_FOUND, 404),
        (code_pb2.ALREADY_EXISTS, 409),
        (code_pb2.UNAUTHENTICATED, 401),
        (code_pb2.PERMISSION_DENIED, 403),
        (code_pb2.RESOURCE_EXHAUSTED, 429),
        (code_pb2.UNAVAILABLE, 503),
        (code_pb2.DEADLINE_EXCEEDED, 504),
        (code_pb2.UNIMPLEMENTED, 400),
        (code_pb2.CANCELLED, 499),
        (code_pb2.UNKNOWN, 500),
        (code_pb2.DATA_LOSS, 500),
        (code_pb2.ABORTED, 500),
    ],
)
def test_status_without_a_reason(code: int, status: int) -> None:
    error = from_status(StatusError(status_pb2.Status(code=code, message="text")), None, "req_1")
    assert error.status == status
    assert ("text" in error.message) == (status != 500)
    assert ("retry-after" in error.headers) == (status in (429, 503))


def test_every_grpc_code_has_an_answer() -> None:
    for code in grpc.StatusCode:
        assert from_status(StatusError(status_pb2.Status(code=code.value[0])), None, "req_1").status >= 400


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("sampling.max_tokens", {"max_tokens": 1}, "max_tokens"),
        ("sampling.max_tokens", {"max_tokens": 1, "max_completion_tokens": 1}, "max_completion_tokens"),
        ("sampling.stop[0]", {"stop": "a"}, "stop"),
        ("sampling.logit_bias[5]", {}, "logit_bias"),
        ("output.logprobs", {"logprobs": True}, "logprobs"),
        ("output.logprobs", {"logprobs": True, "top_logprobs": 2}, "top_logprobs"),
        ("output.return_token_ids", {"stream_options": {}}, "stream_options"),
        ("output.return_token_ids", {"return_token_ids": True}, "return_token_ids"),
        ("output.prompt_logprobs", {"echo": True, "logprobs": 1}, "echo"),
        ("structured_output.json_schema", {"response_format": {}}, "response_format"),
        ("structured_output.regex", {"structured_outputs": {"regex": "["}}, "structured_outputs"),
        ("structured_output", {"guided_regex": "["}, "guided_regex"),
        ("messages[0].role", {}, "messages[0].role"),
        ("messages[1].content[2].image", {"messages": [{}, {"content": [{}, {}, {}]}]}, "messages[1].content[2]"),
        ("messages[0].content[0].text", {"messages": [{"content": "hi"}]}, "messages[0].content"),
        ("messages[0].tool_calls[1].name", {}, "messages[0].tool_calls[1].function.name"),
        ("messages[0].tool_calls[1].id", {}, "messages[0].tool_calls[1].id"),
        ("messages", {}, "messages"),
        ("tools[1].function.name", {"tools": [{}]}, "tools[1].function.name"),
        ("tools[1].function.name", {"functions": [{}]}, "functions[1].name"),
        ("tools", {"functions": [{}]}, "functions"),
        ("tool_choice.mode", {"tools": [{}]}, "tool_choice"),
        ("tool_choice.mode", {"functions": [{}]}, "function_call"),
        ("reasoning.effort", {}, "reasoning_effort"),
        ("reasoning.max_tokens", {}, "thinking_token_budget"),
        ("reasoning.include", {}, "include_reasoning"),
        ("template.kwargs.x", {}, "chat_template_kwargs"),
        ("template.continue_final_message", {}, "continue_final_message"),
        ("parallel_tool_calls", {}, "parallel_tool_calls"),
        ("adapter", {}, "model"),
        ("timeout", {}, None),
        ("text", {}, "prompt"),
        ("token_ids.ids[3]", {}, "prompt"),
        ("inputs[2].token_ids.ids[0]", {}, "input"),
        ("cache_salt", {}, "cache_salt"),
    ],
)
def test_field_path_to_parameter(path: str, body: dict[str, Any], param: str | None) -> None:
    assert ParamNames(body, "messages").param(path) == param


@pytest.mark.parametrize("kind", ["BELOW_MIN", "ABOVE_MAX", "EMPTY", "TOO_MANY", "OUT_OF_VOCABULARY", "INVALID_VALUE"])
def test_violation_kind_to_code(kind: str) -> None:
    error = from_status(StatusError.field("sampling.top_k", "must be otherwise", kind), ParamNames({}, "prompt"), "r")
    assert error.param == "top_k"
    assert error.message == "Invalid 'top_k': must be otherwise."
    assert isinstance(error.code, str)
    decimal = from_status(StatusError.field("sampling.top_p", "must be", "BELOW_MIN"), ParamNames({}, "prompt"), "r")
    assert decimal.code == "decimal_below_min_value"
