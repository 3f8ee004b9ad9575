"""The stand-in for a model's weights: reads a rendered prompt and does what it asks, in the plainest way.

It calls the tool that it is offered, says the result of a tool, gives JSON that conforms to a schema, and repeats what
the user said otherwise. Values come out of the user's text where they fit: numbers by their order, quoted texts, names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_MESSAGE = re.compile(r"<\|(system|developer|user|assistant|tool)\|>(.*?)<\|end\|>", re.DOTALL)
_TOOLS = re.compile(r"<\|tools\|>(\[.*\])(?:<\|assistant\|>)?$", re.DOTALL)
_CALLED = re.compile(r"<\|call\|>(\w+)")
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_NAME = re.compile(r"(?<=\s)[A-Z]\w+(?: [A-Z]\w+)*")
_FORMATS = {"date": "2026-01-31", "date-time": "2026-01-31T12:00:00Z", "time": "12:00:00Z", "email": "ada@example.com"}
_SAMPLES = ("42", "yes", "A", "2026-01-31", "12:00", "ada@example.com")
"""What is tried on a regular expression, after the user's own words."""


@dataclass
class Prompt:
    """A conversation, as the template of the scripted engine writes it down."""

    user: str
    """The last text of the user."""
    system: str
    """All that was said by the system."""
    results: list[str]
    """Results of tools since then, in order."""
    called: set[str]
    """Names of the tools that were called since then."""
    tools: dict[str, Any]
    """Schemas of the arguments by the tool's name, in the request's order."""

    @classmethod
    def read(cls, text: str) -> Prompt:
        """Reads a prompt."""
        messages = _MESSAGE.findall(text)
        users = [number for number, (role, _) in enumerate(messages) if role == "user"]
        since = messages[users[-1] + 1 :] if users else messages
        offered = _TOOLS.search(text)
        functions = [tool["function"] for tool in json.loads(offered[1])] if offered else []
        return cls(
            user=messages[users[-1]][1] if users else "",
            system="\n".join(content for role, content in messages if role in ("system", "developer")),
            results=[content for role, content in since if role == "tool"],
            called={name for role, content in since if role == "assistant" for name in _CALLED.findall(content)},
            tools={function["name"]: function.get("parameters") or {} for function in functions},
        )

    def tool(self) -> str:
        """The tool to call: one that the user names, else the first that was not called yet."""
        fresh = [name for name in self.tools if name not in self.called] or list(self.tools)
        return next((name for name in fresh if re.search(rf"\b{re.escape(name)}\b", self.user)), fresh[0])


def answer(text: str, wanted: Any = None) -> str:
    """What the model says.

    Args:
        text: The prompt.
        wanted: vLLM's StructuredOutputsParams of the request, or None.
    """
    prompt = Prompt.read(text)
    if wanted is not None:
        return _constrained(prompt, wanted)
    if prompt.tools and not prompt.results:
        return _call(prompt, prompt.tool())
    schema = _schema_in(prompt.system) if "```json" in prompt.user else None
    return f"```json\n{_example(schema, prompt)}\n```" if schema else _sentence(prompt)


def _sentence(prompt: Prompt) -> str:
    if prompt.results:
        return f"The answer is {'; '.join(prompt.results)}."
    return f"You said: {prompt.user[:200].strip()}"


def _constrained(prompt: Prompt, wanted: Any) -> str:
    if wanted.json is not None:
        schema = json.loads(wanted.json) if isinstance(wanted.json, str) else wanted.json
        return _example(schema, prompt)
    if wanted.json_object:
        return _example(_schema_in(prompt.system + prompt.user) or _keys_in(prompt.user), prompt)
    if wanted.choice:
        return str(wanted.choice[0])
    if wanted.regex is not None:
        return next(word for word in (*prompt.user.split(), *_SAMPLES) if re.fullmatch(wanted.regex, word))
    if wanted.structural_tag is not None:
        return _calling(prompt, wanted.structural_tag)
    if wanted.grammar is not None:  # which vLLM makes of a choice
        return str(json.loads(wanted.grammar.partition("root ::= ")[2].partition(" | ")[0]))
    raise NotImplementedError(f"nothing is known about {wanted}")


def _calling(prompt: Prompt, tag: str) -> str:
    """What vLLM's grammar of calls lets be said: a forced call, a call or text, or a call or JSON."""
    grammar = json.loads(tag)["format"]
    if prompt.results and grammar["type"] == "or":
        return _example(grammar["elements"][1]["json_schema"], prompt)
    if prompt.results and not grammar.get("at_least_one"):
        return _sentence(prompt)
    allowed = [name for name in prompt.tools if f'\\"{name}\\"' in tag]
    return _call(prompt, prompt.tool() if prompt.tool() in allowed else allowed[0])


def _call(prompt: Prompt, name: str) -> str:
    arguments = _example(prompt.tools[name], prompt)
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def _schema_in(text: str) -> dict[str, Any] | None:
    """The first schema that stands in a text: what clients write where an API takes none."""
    decoder = json.JSONDecoder()
    for found in re.finditer(r"\{", text):
        try:
            value, _ = decoder.raw_decode(text, found.start())
        except ValueError:
            continue
        if isinstance(value, dict) and "properties" in value:
            return value
    return None


def _keys_in(text: str) -> dict[str, Any]:
    """A schema of the keys that a text names in quotes."""
    keys = ["".join(pair) for pair in _QUOTED.findall(text)] if " keys" in text else []
    return {"properties": {name: {} for name in keys or ["answer"]}}


def _example(schema: dict[str, Any], prompt: Prompt) -> str:
    return json.dumps(_Maker(schema, prompt).value(schema), ensure_ascii=False)


@dataclass
class _Maker:
    """Makes a value for a schema."""

    root: dict[str, Any]
    prompt: Prompt
    numbers: Iterator[str] = field(init=False)
    texts: Iterator[str] = field(init=False)

    def __post_init__(self) -> None:
        user = self.prompt.user
        self.numbers = iter(_NUMBER.findall(user))
        names = ["".join(pair) for pair in _QUOTED.findall(user)] or _NAME.findall(user)
        self.texts = iter([*self.prompt.results, *names])

    def value(self, schema: Any, name: str = "value") -> Any:
        """A value; `name` is the property's."""
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            said = [one for one in schema["enum"] if str(one).lower() in self.prompt.user.lower()]
            return (said or schema["enum"])[0]
        kinds = schema.get("type", "object" if "properties" in schema else "string")
        kind = next((one for one in kinds if one != "null"), "null") if isinstance(kinds, list) else kinds
        return getattr(self, f"_{kind}")(schema, name)

    def _resolved(self, schema: Any) -> dict[str, Any]:
        if not isinstance(schema, dict):
            return {}
        if "$ref" in schema:
            found: Any = self.root
            for part in schema["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            return self._resolved(found)
        for choice in (schema.get("anyOf"), schema.get("oneOf")):
            if choice:
                return self._resolved(next((one for one in choice if one.get("type") != "null"), choice[0]))
        merged = dict(schema)
        for part in merged.pop("allOf", ()):
            merged |= self._resolved(part)
        return merged

    def _object(self, schema: dict[str, Any], _name: str) -> dict[str, Any]:
        properties = schema.get("properties", {})
        wanted = schema.get("required") or [name for name, one in properties.items() if "default" not in one]
        return {name: self.value(one, name) for name, one in properties.items() if name in wanted}

    def _array(self, schema: dict[str, Any], name: str) -> list[Any]:
        if "prefixItems" in schema:
            return [self.value(one, name) for one in schema["prefixItems"]]
        count = min(max(1, schema.get("minItems", 1)), schema.get("maxItems", 1 << 30))
        return [self.value(schema.get("items"), name) for _ in range(count)]

    def _string(self, schema: dict[str, Any], name: str) -> str:
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        text = next(self.texts, f"some {name}")
        return text.ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength")]

    def _number(self, schema: dict[str, Any], _name: str) -> float:
        return float(next(self.numbers, schema.get("minimum", 1)))

    def _integer(self, schema: dict[str, Any], name: str) -> int:
        return int(self._number(schema, name))

    def _boolean(self, _schema: dict[str, Any], _name: str) -> bool:
        return True

    def _null(self, _schema: dict[str, Any], _name: str) -> None:
        return None
