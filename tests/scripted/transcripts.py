"""What models of each family write, and the message that it means."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}

TOOLS: dict[str, Any] = {"get_weather": WEATHER, "now": {"type": "object", "properties": {}}}


@dataclass(frozen=True)
class Transcript:
    """One answer in one family's syntax."""

    name: str
    text: str
    content: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    special: tuple[str, ...] = field(default=())


PARIS = ("get_weather", {"city": "Paris", "days": 3})
ZURICH = ("get_weather", {"city": "Zürich 🦜"})
NOW: tuple[str, dict[str, Any]] = ("now", {})


def _json_call(name: str, arguments: dict[str, Any], key: str = "arguments") -> str:
    return json.dumps({"name": name, key: arguments}, ensure_ascii=False)


def _hermes(*calls: tuple[str, dict[str, Any]]) -> str:
    return "\n".join(f"<tool_call>\n{_json_call(*call)}\n</tool_call>" for call in calls)


_TOOL_TAGS = ("<tool_call>", "</tool_call>")
_THINK = ("<think>", "</think>")


def _qwen_coder(name: str, arguments: dict[str, Any]) -> str:
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def _glm(name: str, arguments: dict[str, Any]) -> str:
    pairs = "".join(f"<arg_key>{k}</arg_key>\n<arg_value>{v}</arg_value>\n" for k, v in arguments.items())
    return f"<tool_call>{name}\n{pairs}</tool_call>"


def _deepseek(*calls: tuple[str, dict[str, Any]]) -> str:
    inner = "\n".join(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{json.dumps(args, ensure_ascii=False)}\n```"
        "<｜tool▁call▁end｜>"
        for name, args in calls
    )
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


_DEEPSEEK_TAGS = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
)

TRANSCRIPTS = (
    Transcript(
        "hermes, text alone",
        "No tool is needed.",
        content="No tool is needed.",
        tool_parser="hermes",
        special=_TOOL_TAGS,
    ),
    Transcript("hermes, one call", _hermes(PARIS), calls=(PARIS,), tool_parser="hermes", special=_TOOL_TAGS),
    Transcript(
        "hermes, text and two calls",
        "Let me look.\n" + _hermes(ZURICH, NOW),
        content="Let me look.",
        calls=(ZURICH, NOW),
        tool_parser="hermes",
        special=_TOOL_TAGS,
    ),
    Transcript(
        "llama3_json, one call",
        _json_call(*PARIS, key="parameters"),
        calls=(PARIS,),
        tool_parser="llama3_json",
        special=("<|python_tag|>",),
    ),
    Transcript(
        "llama3_json, text alone",
        "It is sunny.",
        content="It is sunny.",
        tool_parser="llama3_json",
        special=("<|python_tag|>",),
    ),
    Transcript(
        "mistral, two calls",
        "[TOOL_CALLS]" + json.dumps([{"name": n, "arguments": a} for n, a in (PARIS, ZURICH)], ensure_ascii=False),
        calls=(PARIS, ZURICH),
        tool_parser="mistral",
        special=("[TOOL_CALLS]",),
    ),
    Transcript(
        "pythonic, two calls", "[get_weather(city='Paris', days=3), now()]", calls=(PARIS, NOW), tool_parser="pythonic"
    ),
    Transcript(
        "qwen3 thinking",
        "<think>\nHm, 🦜?\n</think>\n\nYes.",
        reasoning="\nHm, 🦜?\n",
        content="\n\nYes.",
        reasoning_parser="qwen3",
        special=_THINK,
    ),
    Transcript(
        "qwen3 thinking, then hermes calls",
        "<think>\nA tool.\n</think>\n\n" + _hermes(PARIS, NOW),
        reasoning="\nA tool.\n",
        calls=(PARIS, NOW),
        tool_parser="hermes",
        reasoning_parser="qwen3",
        special=(*_THINK, *_TOOL_TAGS),
    ),
    Transcript(
        "qwen3_coder, one call", _qwen_coder(*PARIS), calls=(PARIS,), tool_parser="qwen3_coder", special=_TOOL_TAGS
    ),
    Transcript(
        "qwen3_xml, text and a call",
        "Looking.\n" + _qwen_coder(*ZURICH),
        content="Looking.",
        calls=(ZURICH,),
        tool_parser="qwen3_xml",
        special=_TOOL_TAGS,
    ),
    Transcript(
        "deepseek_r1",
        "I think so.</think>It is.",
        reasoning="I think so.",
        content="It is.",
        reasoning_parser="deepseek_r1",
        special=_THINK,
    ),
    Transcript(
        "deepseek_v3, one call", _deepseek(PARIS), calls=(PARIS,), tool_parser="deepseek_v3", special=_DEEPSEEK_TAGS
    ),
    Transcript(
        "glm45, thinking and a call",
        "<think>Hm.</think>\n" + _glm(*PARIS),
        reasoning="Hm.",
        calls=(PARIS,),
        tool_parser="glm45",
        reasoning_parser="glm45",
        special=(*_THINK, *_TOOL_TAGS),
    ),
    Transcript(
        "granite, two calls",
        "<|tool_call|>" + json.dumps([{"name": n, "arguments": a} for n, a in (PARIS, NOW)]),
        calls=(PARIS, NOW),
        tool_parser="granite",
        special=("<|tool_call|>",),
    ),
    Transcript(
        "kimi_k2, one call",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
        + json.dumps(PARIS[1])
        + "<|tool_call_end|><|tool_calls_section_end|>",
        calls=(PARIS,),
        tool_parser="kimi_k2",
        special=(
            "<|tool_calls_section_begin|>",
            "<|tool_calls_section_end|>",
            "<|tool_call_begin|>",
            "<|tool_call_end|>",
            "<|tool_call_argument_begin|>",
        ),
    ),
    Transcript(
        "phi4_mini_json, one call",
        "functools[" + _json_call(*PARIS) + "]",
        calls=(PARIS,),
        tool_parser="phi4_mini_json",
    ),
    Transcript(
        "internlm, one call",
        "<|action_start|><|plugin|>" + _json_call(*PARIS, key="parameters") + "<|action_end|>",
        calls=(PARIS,),
        tool_parser="internlm",
        special=("<|action_start|>", "<|plugin|>", "<|action_end|>"),
    ),
    Transcript(
        "jamba, one call",
        "<tool_calls>[" + _json_call(*PARIS) + "]</tool_calls>",
        calls=(PARIS,),
        tool_parser="jamba",
        special=("<tool_calls>", "</tool_calls>"),
    ),
)
