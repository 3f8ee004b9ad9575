"""OpenAI's messages -> the contract's conversation."""

from __future__ import annotations

from tokenwire.v1 import chat_pb2
from tokenwire_server.rest.openai.fields import Fields, invalid, unsupported
from tokenwire_server.rest.openai.media import read_media

__all__ = ["read_messages"]

_ROLES = {
    "system": chat_pb2.ROLE_SYSTEM,
    "developer": chat_pb2.ROLE_DEVELOPER,
    "user": chat_pb2.ROLE_USER,
    "assistant": chat_pb2.ROLE_ASSISTANT,
    "tool": chat_pb2.ROLE_TOOL,
    "function": chat_pb2.ROLE_TOOL,
}
_MAX_MESSAGES = 4096
_MAX_PARTS = 1024


def read_messages(fields: Fields) -> list[chat_pb2.ChatMessage]:
    """Reads `messages`.

    Raises:
        OpenAIError: Naming the message and the key in it.
    """
    if fields.get("messages") is None:
        raise fields.missing("messages")
    if not fields.array("messages"):
        raise fields.empty_array("messages")
    messages: list[chat_pb2.ChatMessage] = []
    legacy_call = ""
    for index, one in enumerate(fields.objects("messages", _MAX_MESSAGES)):
        role = one.choice("role", tuple(_ROLES))
        if role is None:
            raise one.missing("role")
        message = _message(one, role, f"call_{index}")
        if role == "assistant" and one.get("function_call") is not None:
            legacy_call = message.tool_calls[-1].id
        elif role == "function":
            message.tool_call_id = legacy_call
        messages.append(message)
    return messages


def _message(fields: Fields, role: str, legacy_id: str) -> chat_pb2.ChatMessage:
    message = chat_pb2.ChatMessage(role=_ROLES[role], name=fields.string("name") or "")
    if role == "assistant":
        _assistant(fields, message, legacy_id)
    elif role == "tool":
        message.tool_call_id = fields.string("tool_call_id") or ""
    _content(fields, message)
    return message


def _assistant(fields: Fields, message: chat_pb2.ChatMessage, legacy_id: str) -> None:
    if fields.get("audio") is not None:
        raise unsupported(fields.at("audio"))
    # vLLM renamed the key in 0.12; clients send back whichever they were given.
    message.reasoning = fields.string("reasoning") or fields.string("reasoning_content") or ""
    for call in fields.objects("tool_calls", 128):
        if (call.string("type") or "function") != "function":
            raise unsupported(call.at("type"), "other than 'function' is not supported by this server")
        function = call.required_object("function")
        message.tool_calls.append(_call(function, call.string("id") or ""))
    legacy = fields.object("function_call")
    if legacy is not None:
        message.tool_calls.append(_call(legacy, legacy_id))


def _call(function: Fields, call_id: str) -> chat_pb2.ToolCall:
    name = function.required_string("name")
    return chat_pb2.ToolCall(id=call_id, name=name, arguments=function.string("arguments") or "")


def _content(fields: Fields, message: chat_pb2.ChatMessage) -> None:
    value = fields.get("content")
    if value is None:
        refusal = fields.string("refusal") if message.role == chat_pb2.ROLE_ASSISTANT else None
        if refusal:
            message.content.add(text=refusal)
        elif not message.tool_calls and not message.reasoning:
            raise fields.missing("content")
        return
    if isinstance(value, str):
        message.content.add(text=value)
        return
    if not isinstance(value, list):
        fields.wrong_type("content", "a string or an array of content parts")
    if not value and not message.tool_calls:
        raise fields.empty_array("content")
    message.content.extend(_part(part) for part in fields.objects("content", _MAX_PARTS))


def _part(part: Fields) -> chat_pb2.ContentPart:
    kind = part.string("type")
    if kind is None:
        raise part.missing("type")
    if kind in ("text", "refusal"):
        return chat_pb2.ContentPart(text=part.required_string(kind))
    media = read_media(part, kind)
    if media is None:
        names = "'text', 'image_url', 'input_audio', and 'file'"
        raise invalid(part.at("type"), f"Invalid value: '{kind[:64]}'. Supported values are: {names}.")
    return media
