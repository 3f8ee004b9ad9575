"""`/v1/responses`: the request -> `ChatRequest`. Nothing is stored: what would need it is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tokenwire.v1 import chat_pb2, sampling_pb2
from tokenwire_server.rest.openai.chat import EFFORTS
from tokenwire_server.rest.openai.fields import Fields, invalid, unsupported
from tokenwire_server.rest.openai.options import read_model, read_service_tier, read_stream
from tokenwire_server.rest.openai.params import ParamNames
from tokenwire_server.rest.openai.responses_input import read_input
from tokenwire_server.rest.openai.sampling import (
    read_call_fields,
    read_some_sampling,
    read_stop,
    refuse_unsupported,
)
from tokenwire_server.rest.openai.structured import json_text
from tokenwire_server.rest.openai.tools import free_forced_call, read_tools

__all__ = ["ResponseCall", "ResponseNames", "read_response"]

_STATELESS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("previous_response_id", ()),
    ("conversation", ()),
    ("store", (False,)),
    ("background", (False,)),
)
_UNSUPPORTED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("prompt", ()),
    ("truncation", ("disabled",)),
    ("context_management", ([],)),
    ("image", ()),
    ("access_programs", ()),
    ("background_options", ()),
    ("previous_input_messages", ([],)),
    ("enable_response_messages", (False,)),
)
_MOVED: Mapping[str, str] = MappingProxyType(
    {
        "max_tokens": "max_output_tokens",
        "max_completion_tokens": "max_output_tokens",
        "response_format": "text.format",
        "messages": "input",
        "reasoning_effort": "reasoning.effort",
        "functions": "tools",
        "function_call": "tool_choice",
    }
)
"""Names of the chat surface. Passing them over would change the answer in silence."""

_SAMPLING = frozenset(
    {
        *("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"),
        *("seed", "ignore_eos", "min_tokens", "skip_special_tokens", "include_stop_str_in_output"),
    }
)
_INCLUDES = (
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)
"""Beyond the first they add to items that are never made here: there is nothing to leave out."""


@dataclass(frozen=True, slots=True)
class ResponseCall:
    """A translated request, and what its reply repeats."""

    request: chat_pb2.ChatRequest
    stream: bool
    origins: list[str]
    """Which parameter each message came from."""
    logprobs: bool = False
    echo: dict[str, Any] = field(default_factory=dict)
    """Parameters that the reply repeats, with their defaults."""


class ResponseNames(ParamNames):
    """Names of the fields of a Responses request."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__(body, "input")
        self.origins: list[str] = []

    def param(self, path: str) -> str | None:
        """See `ParamNames.param`."""
        if path.startswith("messages["):
            index = int(path[len("messages[") :].partition("]")[0])
            return self.origins[index] if index < len(self.origins) else "input"
        if path.startswith("tools["):
            return path.replace("].function.", "].", 1)
        moved = {
            "sampling.max_tokens": "max_output_tokens",
            "structured_output": "text.format",
            "output.logprobs": "top_logprobs",
            "reasoning.effort": "reasoning.effort",
        }
        for start, name in moved.items():
            if path.startswith(start):
                return name
        return super().param(path)


def read_response(body: dict[str, Any]) -> ResponseCall:
    """Translates a request.

    Raises:
        OpenAIError: 400 naming the parameter.
    """
    fields = Fields(body)
    request = chat_pb2.ChatRequest(model=read_model(fields))
    _refuse(fields)
    conversation = read_input(fields)
    request.messages.extend(conversation.messages)
    stream = read_stream(fields) is not None
    read_some_sampling(fields, request.sampling, _SAMPLING)
    read_stop(fields, request.sampling)
    limit = fields.integer("max_output_tokens", 1)
    if limit is not None:
        request.sampling.max_tokens = limit
    read_call_fields(fields, request, stream=stream)
    _read_text(fields, request)
    _read_reasoning(fields, request)
    _read_function_tools(fields, request)
    free_forced_call(request)
    logprobs = _read_include(fields, request)
    return ResponseCall(request, stream, conversation.origins, logprobs, _echo(fields, limit))


def _refuse(fields: Fields) -> None:
    for name, harmless in _STATELESS:
        value = fields.get(name)
        if value is not None and value not in harmless:
            raise unsupported(name, "needs stored responses, which this server does not keep: send the whole input")
    for name, now in _MOVED.items():
        if fields.get(name) is not None:
            raise unsupported(name, f"has moved to '{now}' in the Responses API")
    if (fields.integer("n", 1) or 1) > 1:
        raise unsupported("n", "above 1 is not possible in the Responses API")
    refuse_unsupported(fields, _UNSUPPORTED)


def _read_text(fields: Fields, request: chat_pb2.ChatRequest) -> None:
    text = fields.object("text")
    if text is None:
        return
    text.choice("verbosity", ("low", "medium", "high"))
    spec = text.object("format")
    kind = spec.choice("type", ("text", "json_object", "json_schema")) if spec is not None else None
    if spec is not None and kind is None:
        raise spec.missing("type")
    if kind == "json_object":
        request.structured_output.json_object = True
    elif spec is not None and kind == "json_schema":
        spec.required_object("schema")
        spec.string("name")
        spec.boolean("strict")
        request.structured_output.CopyFrom(sampling_pb2.StructuredOutput(json_schema=json_text(spec, "schema")))


def _read_reasoning(fields: Fields, request: chat_pb2.ChatRequest) -> None:
    reasoning = fields.object("reasoning")
    if reasoning is not None:
        effort = reasoning.choice("effort", tuple(EFFORTS))
        if effort is not None:
            request.reasoning.effort = EFFORTS[effort]
        for name in ("summary", "generate_summary"):
            reasoning.choice(name, ("auto", "concise", "detailed"))
    if fields.boolean("include_reasoning") is False:
        request.reasoning.include = False


def _read_function_tools(fields: Fields, request: chat_pb2.ChatRequest) -> None:
    """Tools here are flat: `{"type": "function", "name": ...}`; they are read once in the chat surface's shape."""
    nested: list[dict[str, Any]] = []
    for tool in fields.objects("tools", 128):
        kind = tool.required_string("type")
        if kind != "function":
            raise unsupported(tool.at("type"), f"'{kind[:64]}' is not supported by this server")
        tool.required_string("name")
        nested.append({"type": "function", "function": dict(tool.data)})
    choice = fields.get("tool_choice")
    if isinstance(choice, dict):
        choice = _nested_choice(fields.required_object("tool_choice"))
    parallel = fields.get("parallel_tool_calls")
    read_tools(Fields({"tools": nested, "tool_choice": choice, "parallel_tool_calls": parallel}), request)


def _nested_choice(choice: Fields) -> dict[str, Any]:
    kind = choice.required_string("type")
    if kind == "function":
        return {"type": kind, "function": {"name": choice.required_string("name")}}
    if kind == "allowed_tools":
        tools = [{"function": {"name": one.required_string("name")}} for one in choice.objects("tools")]
        return {"type": kind, "mode": choice.get("mode"), "tools": tools}
    raise unsupported("tool_choice", f"of type '{kind[:64]}' is not supported by this server")


def _read_include(fields: Fields, request: chat_pb2.ChatRequest) -> bool:
    wanted = fields.strings("include") or []
    for one in wanted:
        if one not in _INCLUDES:
            raise invalid("include", f"Invalid value: '{one[:64]}'.")
    top = fields.integer("top_logprobs", 0, 20)
    logprobs = _INCLUDES[0] in wanted
    if logprobs or top:
        request.output.logprobs = top or 0
    return logprobs or bool(top)


def _echo(fields: Fields, limit: int | None) -> dict[str, Any]:
    text = fields.get("text") or {}
    reasoning = fields.get("reasoning") or {}
    tools = [
        {"type": "function", "strict": False, "description": None, "parameters": {}, **tool}
        for tool in fields.get("tools") or []
    ]
    choice = fields.get("tool_choice")
    parallel = fields.get("parallel_tool_calls")
    metadata = fields.object("metadata")
    return {
        "background": False,
        "instructions": fields.get("instructions"),
        "max_output_tokens": limit,
        "max_tool_calls": fields.integer("max_tool_calls", 1),
        "metadata": dict(metadata.data) if metadata is not None else {},
        "parallel_tool_calls": True if parallel is None else parallel,
        "previous_response_id": None,
        "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
        "service_tier": read_service_tier(fields) or "default",
        "store": False,
        "temperature": _number(fields, "temperature"),
        "text": {"format": text.get("format") or {"type": "text"}},
        "tool_choice": "auto" if choice is None else choice,
        "tools": tools,
        "top_logprobs": fields.integer("top_logprobs") or 0,
        "top_p": _number(fields, "top_p"),
        "truncation": "disabled",
    }


def _number(fields: Fields, name: str) -> float:
    value = fields.number(name)
    return 1.0 if value is None else value
