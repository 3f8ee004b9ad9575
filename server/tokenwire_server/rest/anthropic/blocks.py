"""Anthropic's messages and content blocks -> the contract's conversation."""

from __future__ import annotations

import orjson

from tokenwire.v1 import chat_pb2
from tokenwire_server.rest.openai.fields import Fields, invalid, unsupported
from tokenwire_server.rest.openai.media import decode_base64

__all__ = ["read_conversation"]

_MAX_MESSAGES = 4096
_MAX_BLOCKS = 1024
_PASSED_OVER = frozenset({"redacted_thinking"})
"""Blocks that only another server can read."""


def read_conversation(fields: Fields) -> tuple[list[chat_pb2.ChatMessage], list[str]]:
    """Reads `system` and `messages`; also which parameter each message came from.

    Raises:
        OpenAIError: Naming the message and the key in it.
    """
    messages: list[chat_pb2.ChatMessage] = []
    origins: list[str] = []
    system = _system(fields)
    if system:
        messages.append(chat_pb2.ChatMessage(role=chat_pb2.ROLE_SYSTEM, content=[chat_pb2.ContentPart(text=system)]))
        origins.append("system")
    if fields.get("messages") is None:
        raise fields.missing("messages")
    if not fields.array("messages"):
        raise fields.empty_array("messages")
    for one in fields.objects("messages", _MAX_MESSAGES):
        role = one.choice("role", ("user", "assistant", "system"))
        if role is None:
            raise one.missing("role")
        found = _assistant(one) if role == "assistant" else _user(one, role)
        messages.extend(found)
        origins.extend([one.at("")[:-1]] * len(found))
    return messages, origins


def _system(fields: Fields) -> str:
    value = fields.get("system")
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        fields.wrong_type("system", "a string or an array of text blocks")
    return "\n\n".join(block.required_string("text") for block in fields.objects("system", _MAX_BLOCKS))


def _blocks(message: Fields) -> list[Fields]:
    value = message.get("content")
    if value is None:
        raise message.missing("content")
    if isinstance(value, str):
        return [Fields({"type": "text", "text": value}, message.at("content"))]
    if not isinstance(value, list):
        message.wrong_type("content", "a string or an array of content blocks")
    if not value:
        raise message.empty_array("content")
    return message.objects("content", _MAX_BLOCKS)


def _assistant(fields: Fields) -> list[chat_pb2.ChatMessage]:
    message = chat_pb2.ChatMessage(role=chat_pb2.ROLE_ASSISTANT)
    for block in _blocks(fields):
        kind = block.required_string("type")
        if kind == "text":
            message.content.add(text=block.required_string("text"))
        elif kind == "thinking":
            message.reasoning += block.required_string("thinking")
        elif kind == "tool_use":
            arguments = orjson.dumps(block.required_object("input").data).decode()
            message.tool_calls.add(
                id=block.required_string("id"), name=block.required_string("name"), arguments=arguments
            )
        elif kind not in _PASSED_OVER:
            raise _refused(block, kind)
    return [message]


def _user(fields: Fields, role: str) -> list[chat_pb2.ChatMessage]:
    """A user's turn; results of tools are messages of their own and go before what is said beside them."""
    results: list[chat_pb2.ChatMessage] = []
    said = chat_pb2.ChatMessage(role=chat_pb2.ROLE_SYSTEM if role == "system" else chat_pb2.ROLE_USER)
    for block in _blocks(fields):
        if block.required_string("type") == "tool_result":
            results.append(_tool_result(block))
        else:
            said.content.append(_part(block))
    return [*results, said] if said.content or not results else results


def _tool_result(block: Fields) -> chat_pb2.ChatMessage:
    message = chat_pb2.ChatMessage(role=chat_pb2.ROLE_TOOL, tool_call_id=block.required_string("tool_use_id"))
    if block.boolean("is_error"):
        message.content.add(text="Error: ")  # templates have no other place for it
    content = block.get("content")
    if content is None or isinstance(content, str):
        message.content.add(text=content or "")
    elif isinstance(content, list):
        message.content.extend(_part(one) for one in block.objects("content", _MAX_BLOCKS))
        if not content:
            message.content.add(text="")
    else:
        block.wrong_type("content", "a string or an array of content blocks")
    return message


def _part(block: Fields) -> chat_pb2.ContentPart:
    kind = block.required_string("type")
    if kind == "text":
        return chat_pb2.ContentPart(text=block.required_string("text"))
    if kind == "image":
        return chat_pb2.ContentPart(image=_media(block.required_object("source")))
    if kind == "document":
        source = block.required_object("source")
        if source.get("type") == "text":
            return chat_pb2.ContentPart(text=source.required_string("data"))
        media = _media(source)
        media.filename = (block.string("title") or "")[:256]
        return chat_pb2.ContentPart(file=media)
    raise _refused(block, kind)


def _media(source: Fields) -> chat_pb2.MediaPart:
    kind = source.required_string("type")
    if kind == "base64":
        data = decode_base64(source.required_string("data"), source.at("data"))
        return chat_pb2.MediaPart(data=data, mime_type=source.required_string("media_type")[:256])
    if kind == "url":
        url = source.required_string("url")
        if not url.startswith(("https://", "http://")):
            raise invalid(source.at("url"), f"Invalid '{source.at('url')}': expected an https or http URL.")
        return chat_pb2.MediaPart(uri=url)
    raise unsupported(source.at("type"), f"'{kind[:64]}' is not supported by this server")


def _refused(block: Fields, kind: str) -> Exception:
    return unsupported(block.at("type"), f"'{kind[:64]}' is not supported by this server")
