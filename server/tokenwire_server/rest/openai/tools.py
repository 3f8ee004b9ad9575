"""OpenAI's tools and its older functions -> the contract's tools and tool choice."""

from __future__ import annotations

from typing import Any

from tokenwire.v1 import chat_pb2
from tokenwire_server.rest.openai.fields import Fields, invalid, unsupported
from tokenwire_server.rest.openai.structured import json_text

__all__ = ["free_forced_call", "read_tools"]

_MODES = {
    "none": chat_pb2.ToolChoice.MODE_NONE,
    "auto": chat_pb2.ToolChoice.MODE_AUTO,
    "required": chat_pb2.ToolChoice.MODE_REQUIRED,
}
_MAX_TOOLS = 128


def read_tools(fields: Fields, request: chat_pb2.ChatRequest) -> None:
    """Reads `tools`, `tool_choice` and `parallel_tool_calls`, or `functions` and `function_call`."""
    legacy = fields.get("functions") is not None
    if legacy and fields.get("tools"):
        raise invalid("functions", "Invalid 'functions': not possible together with 'tools'.")
    if legacy:
        for function in fields.objects("functions", _MAX_TOOLS):
            request.tools.append(_function(function))
    for tool in fields.objects("tools", _MAX_TOOLS):
        request.tools.append(_tool(tool))
    _read_choice(fields, request, "function_call" if legacy else "tool_choice")
    if legacy and request.tools:
        request.parallel_tool_calls = False  # a reply in the older shape holds one call
    elif fields.boolean("parallel_tool_calls") is False and request.tools:
        request.parallel_tool_calls = False


def free_forced_call(request: chat_pb2.ChatRequest) -> None:
    """Takes the format of the text off where a call is forced: no text comes, and some clients send both."""
    choice = request.tool_choice
    if choice.function or chat_pb2.ToolChoice.MODE_REQUIRED in (choice.mode, choice.allowed.mode):
        request.ClearField("structured_output")


def _tool(tool: Fields) -> chat_pb2.Tool:
    kind = tool.string("type")
    if kind is None:
        raise tool.missing("type")
    if kind != "function":
        raise unsupported(tool.at("type"), "other than 'function' is not supported by this server")
    return _function(tool.required_object("function"))


def _function(function: Fields) -> chat_pb2.Tool:
    spec = chat_pb2.FunctionTool(
        name=function.required_string("name"), description=function.string("description") or ""
    )
    if function.object("parameters") is not None:
        spec.parameters = json_text(function, "parameters")
    if function.boolean("strict"):
        spec.strict = True
    return chat_pb2.Tool(function=spec)


def _read_choice(fields: Fields, request: chat_pb2.ChatRequest, param: str) -> None:
    value = fields.get(param)
    if value is None:
        return
    names = {tool.function.name for tool in request.tools}
    choice = _choice(fields, param, value)
    if choice.WhichOneof("choice") == "mode" and choice.mode != chat_pb2.ToolChoice.MODE_REQUIRED:
        # Without tools, `none` and `auto` ask for nothing.
        if names:
            request.tool_choice.CopyFrom(choice)
        return
    if not names:
        raise invalid(param, f"Invalid value for '{param}': '{param}' is only allowed when 'tools' are specified.")
    wanted = list(choice.allowed.functions) or ([choice.function] if choice.function else [])
    for name in wanted:
        if name not in names:
            raise invalid(param, f"Invalid value for '{param}': no tool is named '{name[:64]}'.")
    request.tool_choice.CopyFrom(choice)


def _choice(fields: Fields, param: str, value: Any) -> chat_pb2.ToolChoice:
    if isinstance(value, str):
        mode = fields.choice(param, tuple(_MODES))
        return chat_pb2.ToolChoice(mode=_MODES[str(mode)])
    if not isinstance(value, dict):
        fields.wrong_type(param, "a string or an object")
    spec = Fields.of(value, param)
    if param == "function_call":
        return chat_pb2.ToolChoice(function=spec.required_string("name"))
    kind = spec.required_string("type")
    if kind == "function":
        return chat_pb2.ToolChoice(function=spec.required_object("function").required_string("name"))
    if kind == "allowed_tools":
        return _allowed(spec.object("allowed_tools") or spec)
    raise unsupported(param, f"of type '{kind[:64]}' is not supported by this server")


def _allowed(spec: Fields) -> chat_pb2.ToolChoice:
    mode = spec.choice("mode", ("auto", "required")) or "auto"
    functions = [tool.required_object("function").required_string("name") for tool in spec.objects("tools", _MAX_TOOLS)]
    if not functions:
        raise spec.empty_array("tools")
    return chat_pb2.ToolChoice(allowed=chat_pb2.AllowedTools(mode=_MODES[mode], functions=functions))
