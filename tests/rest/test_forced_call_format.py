"""A format of the text beside a forced call: OpenAI takes both, and clients (instructor) send both."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.rest.fake_backend import FakeBackend

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FORMAT = {"type": "json_schema", "name": "x", "schema": SCHEMA}
CHAT = {
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "response_format": {"type": "json_schema", "json_schema": FORMAT},
}
RESPONSES = {"input": "hi", "tools": [{"type": "function", "name": "f"}], "text": {"format": FORMAT}}
MESSAGES = {
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
}
ALLOWED = {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]}
CASES: list[tuple[str, dict[str, Any], Any, bool]] = [
    ("/v1/chat/completions", CHAT, "required", True),
    ("/v1/chat/completions", CHAT, {"type": "function", "function": {"name": "f"}}, True),
    ("/v1/chat/completions", CHAT, {"type": "allowed_tools", "allowed_tools": ALLOWED}, True),
    ("/v1/chat/completions", CHAT, "auto", False),
    ("/v1/responses", RESPONSES, "required", True),
    ("/v1/responses", RESPONSES, {"type": "function", "name": "f"}, True),
    ("/v1/responses", RESPONSES, "auto", False),
    ("/v1/messages", MESSAGES, {"type": "any"}, True),
    ("/v1/messages", MESSAGES, {"type": "tool", "name": "f"}, True),
    ("/v1/messages", MESSAGES, {"type": "auto"}, False),
]


@pytest.mark.parametrize(("path", "body", "choice", "forced"), CASES)
async def test_a_format_holds_for_text_and_a_forced_call_has_none(
    http: httpx.AsyncClient, backend: FakeBackend, path: str, body: dict[str, Any], choice: Any, forced: bool
) -> None:
    response = await http.post(path, json={"model": "org/tiny", "tool_choice": choice} | body)
    assert response.status_code == 200, response.text
    assert backend.requests[0].HasField("structured_output") is not forced


async def test_a_constraint_of_another_kind_stays_for_the_service_to_refuse(
    http: httpx.AsyncClient, backend: FakeBackend
) -> None:
    body = {name: value for name, value in CHAT.items() if name != "response_format"}
    extra = {"model": "org/tiny", "tool_choice": "required", "structured_outputs": {"regex": "a"}}
    await http.post("/v1/chat/completions", json=body | extra)
    assert backend.requests[0].structured_output.regex == "a"
