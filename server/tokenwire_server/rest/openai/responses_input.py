"""`instructions` and `input` of `/v1/responses` -> the contract's conversation."""

from __future__ import annotations

from tokenwire.v1 import chat_pb2
from tokenwire_server.rest.openai.errors import OpenAIError
from tokenwire_server.rest.openai.fields import Fields, invalid, unsupported
from tokenwire_server.rest.openai.media import read_media

__all__ = ["Conversation", "read_input"]

_ROLES = {
    "system": chat_pb2.ROLE_SYSTEM,
    "developer": chat_pb2.ROLE_DEVELOPER,
    "user": chat_pb2.ROLE_USER,
    "assistant": chat_pb2.ROLE_ASSISTANT,
}
_MAX_ITEMS = 4096
_MAX_PARTS = 1024


class Conversation:
    """Messages, and which parameter each came from."""

    def __init__(self) -> None:
        self.messages: list[chat_pb2.ChatMessage] = []
        self.origins: list[str] = []

    def add(self, message: chat_pb2.ChatMessage, origin: str) -> chat_pb2.ChatMessage:
        """Adds a message."""
        self.messages.append(message)
        self.origins.append(origin)
        return message

    def assistant(self, origin: str, *, new: bool) -> chat_pb2.ChatMessage:
        """The assistant's turn that an item belongs to: templates take reasoning, text and calls of a turn as one."""
        last = self.messages[-1] if self.messages else None
        if not new and last is not None and last.role == chat_pb2.ROLE_ASSISTANT:
            return last
        return self.add(chat_pb2.ChatMessage(role=chat_pb2.ROLE_ASSISTANT), origin)


def read_input(fields: Fields) -> Conversation:
    """Reads `instructions` and `input`.

    Raises:
        OpenAIError: Naming the item and the key in it.
    """
    found = Conversation()
    instructions = fields.get("instructions")
    if isinstance(instructions, list):
        raise unsupported("instructions", "as a list is not supported by this server: send a string")
    text = fields.string("instructions")
    if text:
        found.add(_text_message(chat_pb2.ROLE_SYSTEM, text), "instructions")
    value = fields.get("input")
    if value is None:
        raise fields.missing("input")
    if isinstance(value, str):
        if not value:
            raise invalid("input", "Invalid 'input': empty string. Expected a string with minimum length 1.")
        found.add(_text_message(chat_pb2.ROLE_USER, value), "input")
        return found
    if not isinstance(value, list):
        fields.wrong_type("input", "a string or an array")
    if not value:
        raise fields.empty_array("input")
    for item in fields.objects("input", _MAX_ITEMS):
        _item(item, found)
    return found


def _text_message(role: chat_pb2.Role.ValueType, text: str) -> chat_pb2.ChatMessage:
    return chat_pb2.ChatMessage(role=role, content=[chat_pb2.ContentPart(text=text)])


def _item(item: Fields, found: Conversation) -> None:
    kind = item.string("type") or "message"
    origin = item.at("")[:-1]
    if kind == "message":
        _message(item, found, origin)
    elif kind == "function_call":
        turn = found.assistant(origin, new=False)
        name, arguments = item.required_string("name"), item.required_string("arguments")
        turn.tool_calls.add(id=item.required_string("call_id"), name=name, arguments=arguments)
    elif kind == "function_call_output":
        message = found.add(chat_pb2.ChatMessage(role=chat_pb2.ROLE_TOOL), origin)
        message.tool_call_id = item.required_string("call_id")
        _content(item, "output", message)
    elif kind == "reasoning":
        text = _reasoning(item)
        if text:  # it opens the turn that it belongs to; one that is encrypted says nothing here
            found.assistant(origin, new=True).reasoning = text
    elif kind == "item_reference":
        raise unsupported(item.at("type"), "'item_reference' needs stored responses, which this server does not keep")
    else:
        raise unsupported(item.at("type"), f"'{kind[:64]}' is not supported by this server")


def _message(item: Fields, found: Conversation, origin: str) -> None:
    role = item.choice("role", tuple(_ROLES))
    if role is None:
        raise item.missing("role")
    if role == "assistant":
        last = found.messages[-1] if found.messages else None
        # Only a turn that has no text yet goes on: after text or a call, a message is another one.
        fresh = last is None or bool(last.content) or bool(last.tool_calls)
        message = found.assistant(origin, new=fresh)
    else:
        message = found.add(chat_pb2.ChatMessage(role=_ROLES[role]), origin)
    _content(item, "content", message)


def _content(item: Fields, name: str, message: chat_pb2.ChatMessage) -> None:
    value = item.get(name)
    if value is None:
        raise item.missing(name)
    if isinstance(value, str):
        message.content.add(text=value)
        return
    if not isinstance(value, list):
        item.wrong_type(name, "a string or an array of content parts")
    if not value:
        raise item.empty_array(name)
    message.content.extend(_part(part) for part in item.objects(name, _MAX_PARTS))


def _part(part: Fields) -> chat_pb2.ContentPart:
    kind = part.string("type")
    if kind is None:
        raise part.missing("type")
    if kind in ("input_text", "output_text", "text"):
        return chat_pb2.ContentPart(text=part.required_string("text"))
    if kind == "refusal":
        return chat_pb2.ContentPart(text=part.required_string("refusal"))
    if kind == "input_image":
        return _media(Fields({"image_url": part.get("image_url")}, part.at("")[:-1]), "image_url", part)
    if kind == "input_file":
        data = {key: part.get(key) for key in ("file_id", "file_data", "filename")}
        if part.get("file_url") is not None:
            raise unsupported(part.at("file_url"))
        return _media(Fields({"file": data}, part.at("")[:-1]), "file", part)
    if kind == "input_audio":
        return _media(part, kind, part)
    names = "'input_text', 'output_text', 'input_image', 'input_audio', and 'input_file'"
    raise invalid(part.at("type"), f"Invalid value: '{kind[:64]}'. Supported values are: {names}.")


def _media(fields: Fields, kind: str, part: Fields) -> chat_pb2.ContentPart:
    if part.get("file_id") is not None:
        raise unsupported(part.at("file_id"))
    media = read_media(fields, kind)
    if media is None:
        raise _no_media(part)
    return media


def _no_media(part: Fields) -> OpenAIError:
    return invalid(part.at("type"), "Invalid content part.")


def _reasoning(item: Fields) -> str:
    texts = [part.required_string("text") for part in item.objects("content", _MAX_PARTS)]
    return "".join(texts or [part.required_string("text") for part in item.objects("summary", _MAX_PARTS)])
