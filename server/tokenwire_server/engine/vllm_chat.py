"""Conversations at the vLLM edge: contract messages -> the dicts that vLLM's renderer takes."""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format
from vllm.renderers import ChatParams

from tokenwire.v1 import chat_pb2, tokenization_pb2

__all__ = ["chat_params", "conversation"]

_ROLES = {
    chat_pb2.ROLE_SYSTEM: "system",
    chat_pb2.ROLE_DEVELOPER: "developer",
    chat_pb2.ROLE_USER: "user",
    chat_pb2.ROLE_ASSISTANT: "assistant",
    chat_pb2.ROLE_TOOL: "tool",
}


def conversation(request: chat_pb2.ChatRequest | tokenization_pb2.RenderChatRequest) -> list[dict[str, Any]]:
    """The request's messages as vLLM's renderer takes them (OpenAI's message objects)."""
    return [_message(message) for message in request.messages]


def _message(message: chat_pb2.ChatMessage) -> dict[str, Any]:
    parts = [part.text for part in message.content]
    converted: dict[str, Any] = {
        "role": _ROLES[message.role],
        # A single text stays a string: templates that only know strings get it as it is.
        "content": parts[0] if len(parts) == 1 else [{"type": "text", "text": text} for text in parts],
    }
    if not parts:
        converted["content"] = ""
    if message.name:
        converted["name"] = message.name
    if message.tool_call_id:
        converted["tool_call_id"] = message.tool_call_id
    return converted


def chat_params(request: chat_pb2.ChatRequest | tokenization_pb2.RenderChatRequest) -> ChatParams:
    """How the template is applied."""
    template = request.template
    kwargs: dict[str, Any] = json_format.MessageToDict(template.kwargs) if template.HasField("kwargs") else {}
    going_on = template.continue_final_message
    kwargs["add_generation_prompt"] = (
        template.add_generation_prompt if template.HasField("add_generation_prompt") else not going_on
    )
    kwargs["continue_final_message"] = going_on
    return ChatParams(chat_template_kwargs=kwargs)
