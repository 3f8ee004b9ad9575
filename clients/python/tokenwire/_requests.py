"""Requests of the contract from Python arguments, for both clients."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message

from tokenwire import _arguments as arguments
from tokenwire._fields import set_field
from tokenwire._messages import chat_messages
from tokenwire.v1 import chat_pb2, embedding_pb2, generation_pb2, sampling_pb2, tokenization_pb2

_MODES = {
    "none": chat_pb2.ToolChoice.MODE_NONE,
    "auto": chat_pb2.ToolChoice.MODE_AUTO,
    "required": chat_pb2.ToolChoice.MODE_REQUIRED,
}
# Requests carry these as messages of their own; callers write their fields flat.
_SAMPLING = frozenset(sampling_pb2.SamplingParams.DESCRIPTOR.fields_by_name)
_OUTPUT = frozenset(sampling_pb2.OutputOptions.DESCRIPTOR.fields_by_name)
_FORMS = frozenset(sampling_pb2.StructuredOutput.DESCRIPTOR.fields_by_name)

_RequestT = TypeVar("_RequestT", bound=Message)


def chat_request(messages: arguments.Messages, given: Mapping[str, Any]) -> chat_pb2.ChatRequest:
    """A request of `chat` or `stream_chat`; see `Client.chat` for what is raised."""
    request = chat_pb2.ChatRequest(messages=chat_messages(messages))
    return _filled(request, given, arguments.ChatArguments)


def generate_request(prompt: arguments.Prompt, given: Mapping[str, Any]) -> generation_pb2.GenerateRequest:
    """A request of `generate` or `stream_generate`."""
    request = generation_pb2.GenerateRequest()
    _set_input(request, prompt, "prompt")
    return _filled(request, given, arguments.GenerateArguments)


def embed_request(inputs: arguments.Inputs, given: Mapping[str, Any]) -> embedding_pb2.EmbedRequest:
    """A request of `embed`."""
    request = embedding_pb2.EmbedRequest()
    listed: object = [inputs] if isinstance(inputs, str) else inputs
    if isinstance(listed, bytes | Mapping) or not isinstance(listed, Iterable):
        raise TypeError(f"inputs: expected a str or a list, got {type(inputs).__name__}")
    for index, one in enumerate(listed):
        if isinstance(one, embedding_pb2.EmbedInput):
            request.inputs.append(one)
        else:
            _set_input(request.inputs.add(), one, f"inputs[{index}]")
    return _filled(request, given, arguments.EmbedArguments)


def render_request(messages: arguments.Messages, given: Mapping[str, Any]) -> tokenization_pb2.RenderChatRequest:
    """A request of `render_chat`."""
    request = tokenization_pb2.RenderChatRequest(messages=chat_messages(messages))
    return _filled(request, given, arguments.RenderArguments)


def plain_request(kind: type[_RequestT], **given: object) -> _RequestT:
    """A request whose arguments are its fields."""
    request = kind()
    for name, value in given.items():
        if value is not None:
            set_field(request, name, value)
    return request


def _set_input(message: Any, value: object, label: str) -> None:
    """Fills `text` or `token_ids`, which GenerateRequest and EmbedInput have alike."""
    if isinstance(value, str):
        set_field(message, "text", value, label=label)
    elif isinstance(value, generation_pb2.TokenIds):
        message.token_ids.CopyFrom(value)
    else:
        if isinstance(value, bytes | Mapping) or not isinstance(value, Iterable):
            raise TypeError(f"{label}: expected a str or a list of token ids, got {type(value).__name__}")
        set_field(message.token_ids, "ids", value, label=label)
        message.token_ids.SetInParent()  # an empty list too, which the server refuses by name


def _filled(request: _RequestT, given: Mapping[str, Any], allowed: type) -> _RequestT:
    for name, value in given.items():
        if name not in allowed.__annotations__:
            raise TypeError(f"{name}: no such argument")
        # `timeout` is written at each attempt, from what is left of it.
        if value is not None and name != "timeout":
            _set_argument(request, name, value)
    return request


def _set_argument(request: Any, name: str, value: Any) -> None:
    if name in request.DESCRIPTOR.fields_by_name:
        if name == "tool_choice" and isinstance(value, str):
            request.tool_choice.mode = _tool_mode(value)
        elif name == "structured_output" and request.HasField("structured_output"):
            raise _second_form(name)
        else:
            set_field(request, name, value)
    elif name in _SAMPLING:
        set_field(request.sampling, name, value)
    elif name in _OUTPUT:
        set_field(request.output, name, value)
    else:
        _set_form(request, name, value)


def _set_form(request: Any, name: str, value: Any) -> None:
    if request.HasField("structured_output"):
        raise _second_form(name)
    form = request.structured_output
    if name == "choice" and not isinstance(value, sampling_pb2.ChoiceList):
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise TypeError(f"choice: expected a list of texts, got {type(value).__name__}")
        set_field(form.choice, "choices", value, label="choice")
        form.choice.SetInParent()
    elif name == "json_schema" and isinstance(value, Mapping):
        try:
            form.json_schema = json.dumps(value)
        except TypeError:
            raise TypeError("json_schema: the mapping holds something that JSON does not have") from None
    else:
        set_field(form, name, value)


def _tool_mode(value: str) -> chat_pb2.ToolChoice.Mode.ValueType:
    if value not in _MODES:
        raise ValueError(f"tool_choice: expected a ToolChoice or one of {', '.join(_MODES)}, got {value!r}")
    return _MODES[value]


def _second_form(name: str) -> ValueError:
    forms = ", ".join(sorted(_FORMS))
    return ValueError(f"{name}: the output can conform to one thing only; give one of structured_output, {forms}")
