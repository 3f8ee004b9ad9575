"""Conversations from Python values, and texts out of responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tokenwire._arguments import Messages
from tokenwire._fields import set_field
from tokenwire.v1 import chat_pb2, generation_pb2

_ROLES: Mapping[str, chat_pb2.Role.ValueType] = MappingProxyType(
    {
        "system": chat_pb2.ROLE_SYSTEM,
        "developer": chat_pb2.ROLE_DEVELOPER,
        "user": chat_pb2.ROLE_USER,
        "assistant": chat_pb2.ROLE_ASSISTANT,
        "tool": chat_pb2.ROLE_TOOL,
    }
)
_TEXTS = ("name", "tool_call_id", "reasoning")


def chat_messages(messages: Messages) -> list[chat_pb2.ChatMessage]:
    """The messages of a conversation.

    Raises:
        TypeError: A part of it is of another type.
        ValueError: A role or a key is unknown.
    """
    if isinstance(messages, str):
        return [chat_message({"role": "user", "content": messages}, "messages")]
    if isinstance(messages, bytes | Mapping) or not isinstance(messages, Iterable):
        raise TypeError(f"messages: expected a str or a list, got {type(messages).__name__}")
    return [chat_message(one, f"messages[{index}]") for index, one in enumerate(messages)]


def chat_message(value: chat_pb2.ChatMessage | Mapping[str, Any], label: str) -> chat_pb2.ChatMessage:
    """One message; `label` is what an error calls it."""
    if isinstance(value, chat_pb2.ChatMessage):
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"{label}: expected a ChatMessage or a dict, got {type(value).__name__}")
    unknown = set(value) - {"role", "content", "tool_calls", *_TEXTS}
    if unknown:
        raise ValueError(f"{label}: unknown key {sorted(map(str, unknown))[0]!r}")
    message = chat_pb2.ChatMessage(role=_role(value.get("role"), label))
    message.content.extend(_parts(value.get("content"), f"{label}.content"))
    message.tool_calls.extend(_tool_calls(value.get("tool_calls"), f"{label}.tool_calls"))
    for name in _TEXTS:
        if value.get(name) is not None:
            set_field(message, name, value[name], label=f"{label}.{name}")
    return message


def _role(value: object, label: str) -> chat_pb2.Role.ValueType:
    role = _ROLES.get(value) if isinstance(value, str) else None
    if role is None:
        raise ValueError(f"{label}.role: expected one of {', '.join(_ROLES)}, got {value!r}")
    return role


def _parts(content: object, label: str) -> list[chat_pb2.ContentPart]:
    if content is None:
        return []
    parts = [content] if isinstance(content, str | chat_pb2.ContentPart) else content
    if not isinstance(parts, Sequence) or isinstance(parts, bytes):
        raise TypeError(f"{label}: expected a str, a ContentPart or a list of them, got {type(content).__name__}")
    return [_part(part, f"{label}[{index}]") for index, part in enumerate(parts)]


def _part(value: object, label: str) -> chat_pb2.ContentPart:
    if isinstance(value, chat_pb2.ContentPart):
        return value
    if not isinstance(value, str):
        raise TypeError(f"{label}: expected a str or a ContentPart, got {type(value).__name__}")
    part = chat_pb2.ContentPart()
    set_field(part, "text", value, label=label)
    return part


def _tool_calls(value: object, label: str) -> list[chat_pb2.ToolCall]:
    if value is None:
        return []
    holder = chat_pb2.ChatMessage()
    set_field(holder, "tool_calls", value, label=label)
    return list(holder.tool_calls)


def text(response: chat_pb2.ChatResponse | generation_pb2.GenerateResponse, index: int = 0) -> str:
    """The text of one output.

    Args:
        response: Of `chat` or `generate`, or a stream's `response`.
        index: Which output, 0 to n - 1.

    Raises:
        IndexError: There is no such output.
    """
    if isinstance(response, chat_pb2.ChatResponse):
        return _choice(response, index).content
    for output in response.outputs:
        if output.index == index:
            return output.text
    raise IndexError(f"index: the response has no output {index}")


def message(response: chat_pb2.ChatResponse, index: int = 0) -> chat_pb2.ChatMessage:
    """One choice as the assistant's turn, to go on with: append it to the messages of the next call.

    Args:
        response: Of `chat`, or a stream's `response`.
        index: Which choice, 0 to n - 1.

    Raises:
        IndexError: There is no such choice.
    """
    choice = _choice(response, index)
    turn = chat_pb2.ChatMessage(role=chat_pb2.ROLE_ASSISTANT, reasoning=choice.reasoning, tool_calls=choice.tool_calls)
    if choice.content:
        turn.content.add(text=choice.content)
    return turn


def _choice(response: chat_pb2.ChatResponse, index: int) -> chat_pb2.ChatChoice:
    for choice in response.choices:
        if choice.index == index:
            return choice
    raise IndexError(f"index: the response has no choice {index}")
