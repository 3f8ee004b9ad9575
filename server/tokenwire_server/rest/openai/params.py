"""The one table from the contract's field paths to the parameter names of the OpenAI request that held them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["STRUCTURED_PARAMS", "ParamNames"]

STRUCTURED_PARAMS = (
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "response_format",
)
"""Parameters that may have filled `structured_output`; the first one that is set has."""

_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(messages\[\d+\])\.tool_calls(\[\d+\])\.id", r"\1.tool_calls\2.id"),
        (r"(messages\[\d+\])\.tool_calls(\[\d+\])\.(\w+)", r"\1.tool_calls\2.function.\3"),
        (r"(messages\[\d+\]\.content\[\d+\])\..*", r"\1"),
        (r"reasoning\.effort", "reasoning_effort"),
        (r"reasoning\.max_tokens", "thinking_token_budget"),
        (r"reasoning\.include", "include_reasoning"),
        (r"template\.kwargs.*", "chat_template_kwargs"),
        (r"tool_choice.*", "tool_choice"),
        (r"(?:sampling|output|template)\.(\w+).*", r"\1"),
        (r"structured_output.*", "structured_output"),
        (r"adapter", "model"),
        (r"(?:text|token_ids).*", "prompt"),
        (r"inputs(?:\[\d+\])?.*", "input"),
    )
)
"""First full match wins; a path that matches none keeps its name."""

_CONTENT_PART = re.compile(r"messages\[(\d+)\]\.content\[0\]")


class ParamNames:
    """Names for the fields of one request.

    Args:
        body: The OpenAI request, which says by what name a field came where there are several.
        prompt: What the endpoint calls its prompt: `messages`, `prompt` or `input`.
    """

    def __init__(self, body: Mapping[str, Any], prompt: str) -> None:
        self.prompt = prompt
        self._body = body

    def param(self, path: str) -> str | None:
        """The OpenAI parameter of a field path such as `sampling.max_tokens`; None for what was not in the body."""
        name = path
        for pattern, replacement in _RULES:
            match = pattern.fullmatch(path)
            if match:
                name = match.expand(replacement)
                break
        return self._as_sent(name)

    def _sent(self, name: str) -> bool:
        return self._body.get(name) is not None

    def _as_sent(self, name: str) -> str | None:
        if name == "timeout":
            return None
        if name == "max_tokens" and self._sent("max_completion_tokens"):
            return "max_completion_tokens"
        if name == "logprobs" and self.prompt == "messages" and self._sent("top_logprobs"):
            return "top_logprobs"
        if name == "structured_output":
            return next((one for one in STRUCTURED_PARAMS if self._sent(one)), "response_format")
        if name == "return_token_ids" and not self._sent(name):
            return "stream_options"
        if name == "prompt_logprobs" and not self._sent(name):
            return "echo"
        if not self._sent("tools") and self._sent("functions"):
            name = re.sub(r"^tools(\[\d+\])(?:\.function)?", r"functions\1", name)
            name = "function_call" if name == "tool_choice" else re.sub(r"^tools$", "functions", name)
        return self._content(name)

    def _content(self, name: str) -> str:
        match = _CONTENT_PART.fullmatch(name)
        if match is None:
            return name
        try:
            content = self._body["messages"][int(match[1])]["content"]
        except (KeyError, IndexError, TypeError):
            content = None
        return name if isinstance(content, list) else name.removesuffix("[0]")
