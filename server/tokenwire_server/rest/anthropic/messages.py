"""`/v1/messages` and `/v1/messages/count_tokens`: the request -> `ChatRequest`, `RenderChatRequest`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenwire.v1 import chat_pb2, tokenization_pb2
from tokenwire_server.rest.anthropic.blocks import read_conversation
from tokenwire_server.rest.openai.chat import EFFORTS
from tokenwire_server.rest.openai.fields import Fields, invalid, unsupported
from tokenwire_server.rest.openai.options import read_model
from tokenwire_server.rest.openai.params import ParamNames
from tokenwire_server.rest.openai.sampling import read_some_sampling, refuse_unsupported
from tokenwire_server.rest.openai.structured import json_text
from tokenwire_server.rest.openai.tools import free_forced_call, read_tools

__all__ = ["MessageCall", "MessageNames", "read_count", "read_message"]

_UNSUPPORTED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("container", ()),
    ("mcp_servers", ([],)),
    ("speed", ("standard",)),
)
_MAX_STOPS = 16
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


@dataclass(frozen=True, slots=True)
class MessageCall:
    """A translated request."""

    request: chat_pb2.ChatRequest
    stream: bool
    origins: list[str]
    """Which parameter each message came from."""


class MessageNames(ParamNames):
    """Names of the fields of a Messages request."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__(body, "messages")
        self.origins: list[str] = []

    def param(self, path: str) -> str | None:
        """See `ParamNames.param`."""
        if path.startswith("messages["):
            index = int(path[len("messages[") :].partition("]")[0])
            return self.origins[index] if index < len(self.origins) else "messages"
        if path.startswith("tools["):
            return path.replace("].function.parameters", "].input_schema", 1).replace("].function.", "].", 1)
        moved = {
            "sampling.stop": "stop_sequences",
            "structured_output": "output_config.format",
            "reasoning.max_tokens": "thinking.budget_tokens",
            "reasoning.enabled": "thinking",
            "reasoning.effort": "output_config.effort",
        }
        return moved.get(path.partition("[")[0]) or super().param(path)


def read_message(body: dict[str, Any]) -> MessageCall:
    """Translates a request.

    Raises:
        OpenAIError: 400 naming the parameter.
    """
    fields = Fields(body)
    request = chat_pb2.ChatRequest(model=read_model(fields))
    origins = _read_common(fields, request)
    limit = fields.integer("max_tokens", 1)
    if limit is None:
        raise fields.missing("max_tokens")
    request.sampling.max_tokens = limit
    fields.number("temperature", 0, 1)
    read_some_sampling(fields, request.sampling, {"temperature", "top_p", "top_k", "min_p", "seed"})
    stops = fields.strings("stop_sequences", _MAX_STOPS) or []
    if "" in stops:
        raise invalid("stop_sequences", "Invalid 'stop_sequences': each sequence must hold at least 1 character.")
    request.sampling.stop.extend(stops)
    fields.choice("service_tier", ("auto", "standard_only"))
    last = request.messages[-1]
    if last.role == chat_pb2.ROLE_ASSISTANT and not last.tool_calls:
        request.template.continue_final_message = True  # the client began the answer
    return MessageCall(request, bool(fields.boolean("stream")), origins)


def read_count(body: dict[str, Any]) -> tuple[tokenization_pb2.RenderChatRequest, list[str]]:
    """Translates a request to count tokens.

    Raises:
        OpenAIError: 400 naming the parameter.
    """
    fields = Fields(body)
    request = chat_pb2.ChatRequest(model=read_model(fields))
    origins = _read_common(fields, request)
    count = tokenization_pb2.RenderChatRequest(model=request.model, messages=request.messages, tools=request.tools)
    if request.HasField("reasoning"):
        count.reasoning.CopyFrom(request.reasoning)
    return count, origins


def _read_common(fields: Fields, request: chat_pb2.ChatRequest) -> list[str]:
    refuse_unsupported(fields, _UNSUPPORTED)
    _check_context_management(fields)
    messages, origins = read_conversation(fields)
    request.messages.extend(messages)
    _read_tools(fields, request)
    _read_thinking(fields, request)
    _read_output(fields, request)
    free_forced_call(request)
    return origins


def _check_context_management(fields: Fields) -> None:
    management = fields.object("context_management")
    for edit in management.objects("edits") if management is not None else ():
        # Keeping all of the thinking asks for nothing; every other edit would have to be made.
        if edit.get("type") != "clear_thinking_20251015" or edit.get("keep") != "all":
            raise unsupported(edit.at("type"))


def _read_tools(fields: Fields, request: chat_pb2.ChatRequest) -> None:
    tools: list[dict[str, Any]] = []
    for tool in fields.objects("tools", 128):
        kind = tool.string("type") or "custom"
        if kind != "custom":
            raise unsupported(tool.at("type"), f"'{kind[:64]}' is not supported by this server")
        tool.required_string("name")
        tool.required_object("input_schema")
        function = {
            "name": tool.get("name"),
            "description": tool.string("description"),
            "parameters": tool.get("input_schema"),
            "strict": tool.boolean("strict"),
        }
        tools.append({"type": "function", "function": function})
    choice, parallel = _choice(fields)
    read_tools(Fields({"tools": tools, "tool_choice": choice, "parallel_tool_calls": parallel}), request)


def _choice(fields: Fields) -> tuple[Any, bool | None]:
    choice = fields.object("tool_choice")
    if choice is None:
        return None, None
    kind = choice.choice("type", (*_CHOICES, "tool"))
    if kind is None:
        raise choice.missing("type")
    parallel = False if choice.boolean("disable_parallel_tool_use") else None
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.required_string("name")}}, parallel
    return _CHOICES[kind], parallel


def _read_thinking(fields: Fields, request: chat_pb2.ChatRequest) -> None:
    thinking = fields.object("thinking")
    if thinking is None:
        return
    kind = thinking.choice("type", ("enabled", "disabled", "adaptive"))
    if kind is None:
        raise thinking.missing("type")
    thinking.string("display")
    request.reasoning.enabled = kind != "disabled"
    budget = thinking.integer("budget_tokens", 1)
    if kind == "enabled" and budget is not None:
        request.reasoning.max_tokens = budget


def _read_output(fields: Fields, request: chat_pb2.ChatRequest) -> None:
    config = fields.object("output_config")
    if config is None:
        return
    effort = config.choice("effort", ("low", "medium", "high", "xhigh", "max"))
    if effort is not None:
        request.reasoning.effort = EFFORTS.get(effort, chat_pb2.ReasoningOptions.EFFORT_HIGH)
    spec = config.object("format")
    if spec is not None:
        if spec.choice("type", ("json_schema",)) is None:
            raise spec.missing("type")
        spec.required_object("schema")
        request.structured_output.json_schema = json_text(spec, "schema")
