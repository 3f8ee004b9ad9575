"""One validator for every door: the contract's own rules, then the model's limits, passed in as values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import protovalidate
from google.protobuf.message import Message

from tokenwire.v1 import chat_pb2, embedding_pb2, generation_pb2, sampling_pb2, tokenization_pb2
from tokenwire_server.engine.protocol import EngineLimits
from tokenwire_server.errors import StatusError, Violation

__all__ = ["Validator"]

_KINDS = {
    "required": "REQUIRED",
    "gte": "BELOW_MIN",
    "gt": "BELOW_MIN",
    "lte": "ABOVE_MAX",
    "lt": "ABOVE_MAX",
    "min_items": "EMPTY",
    "max_items": "TOO_MANY",
    "max_pairs": "TOO_MANY",
    "min_len": "EMPTY",
    "max_len": "TOO_LONG",
    "max_bytes": "TOO_LONG",
}
"""Last word of a protovalidate rule id -> kind of the violation. `gte_lte` and the like look at the value."""


_MAX_DEPTH = 64
"""Nesting of a schema; what reads schemas recurses."""


class Validator:
    """Checks a request. Holds the compiled rules: build one and keep it.

    Args:
        max_n: Largest `sampling.n` that the server takes, 1 to 128.
    """

    def __init__(self, *, max_n: int = 128) -> None:
        self._rules = protovalidate.Validator()
        self._max_n = max_n

    def check(self, request: Message) -> None:
        """Checks a request against the contract.

        Raises:
            StatusError: INVALID_FIELD naming every field at fault.
        """
        violations = {v.field: v for v in map(_violation, reversed(self._rules.collect_violations(request)))}
        if violations:
            raise StatusError.invalid(reversed(violations.values()))

    def check_model(self, request: Message, limits: EngineLimits) -> None:
        """Checks a request that passed `check` against the model.

        Raises:
            StatusError: FEATURE_UNSUPPORTED naming the first field that is not served, else INVALID_FIELD naming every
                field at fault.
        """
        for path in sorted(limits.unsupported):
            for found in _set_paths(request, path.split(".")):
                raise StatusError.unsupported(found, "is not served by this model yet")
        violations = list(self._model_rules(request, limits))
        if violations:
            raise StatusError.invalid(violations)

    def _model_rules(self, request: Message, limits: EngineLimits) -> Iterator[Violation]:
        vocab = limits.vocab_size
        if isinstance(request, chat_pb2.ChatRequest | generation_pb2.GenerateRequest):
            yield from self._sampling_rules(request.sampling, request.output, limits)
        if isinstance(request, chat_pb2.ChatRequest | tokenization_pb2.RenderChatRequest):
            yield from _message_rules(request.messages, request.template)
            yield from _tool_rules(request.tools)
            yield from _template_rules(request.template)
        if isinstance(request, chat_pb2.ChatRequest):
            yield from _choice_rules(request)
            if request.output.echo:
                yield Violation("output.echo", "is for Generate: the prompt of a chat is its messages")
        if isinstance(request, chat_pb2.ChatRequest | generation_pb2.GenerateRequest):
            yield from _structured_rules(request.structured_output)
            if request.HasField("structured_output") and request.sampling.allowed_token_ids:
                yield Violation("sampling.allowed_token_ids", "cannot hold together with structured_output")
        if isinstance(request, generation_pb2.GenerateRequest) and request.WhichOneof("prompt") == "token_ids":
            yield from _ids("token_ids.ids", request.token_ids.ids, vocab)
        if isinstance(request, tokenization_pb2.DetokenizeRequest):
            yield from _ids("token_ids", request.token_ids, vocab)
        if isinstance(request, embedding_pb2.EmbedRequest):
            for index, one in enumerate(request.inputs):
                if one.WhichOneof("input") == "token_ids":
                    yield from _ids(f"inputs[{index}].token_ids.ids", one.token_ids.ids, vocab)

    def _sampling_rules(
        self, sampling: sampling_pb2.SamplingParams, output: sampling_pb2.OutputOptions, limits: EngineLimits
    ) -> Iterator[Violation]:
        vocab = limits.vocab_size
        yield from _ids("sampling.stop_token_ids", sampling.stop_token_ids, vocab)
        yield from _ids("sampling.allowed_token_ids", sampling.allowed_token_ids, vocab)
        yield from _ids("sampling.logit_bias", sampling.logit_bias, vocab)
        if sampling.n > self._max_n:
            yield Violation("sampling.n", f"must be less than or equal to {self._max_n}", "ABOVE_MAX")
        if sampling.HasField("max_tokens") and sampling.min_tokens > sampling.max_tokens:
            yield Violation("sampling.min_tokens", "must not be above max_tokens", "ABOVE_MAX")
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(output, name) > limits.max_logprobs:
                yield Violation(f"output.{name}", f"must be less than or equal to {limits.max_logprobs}", "ABOVE_MAX")
        if sampling.stop and output.HasField("return_text") and not output.return_text:
            yield Violation("sampling.stop", "needs output.return_text, since it is matched in the text")


def _message_rules(
    messages: Sequence[chat_pb2.ChatMessage], template: chat_pb2.ChatTemplateOptions
) -> Iterator[Violation]:
    for index, message in enumerate(messages):
        if not message.content and message.role != chat_pb2.ROLE_ASSISTANT:
            yield Violation(f"messages[{index}].content", "must have at least one part", "EMPTY")
        for number, call in enumerate(message.tool_calls):
            if call.arguments and _json_fault(call.arguments, object_only=True):
                yield Violation(f"messages[{index}].tool_calls[{number}].arguments", "must be a JSON object")
    if template.continue_final_message:
        if template.add_generation_prompt:
            yield Violation("template.add_generation_prompt", "must not be set together with continue_final_message")
        if messages[-1].role != chat_pb2.ROLE_ASSISTANT:
            yield Violation("template.continue_final_message", "needs a last message of the assistant")


_OWN_KWARGS = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "documents",
        "messages",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)
"""Arguments of the template that the service sets; a template of the client's own would run as code."""


def _template_rules(template: chat_pb2.ChatTemplateOptions) -> Iterator[Violation]:
    for key, value in template.kwargs.fields.items():
        if key in _OWN_KWARGS:
            yield Violation(f"template.kwargs[{key}]", "is set by the service and cannot be given")
        elif value.WhichOneof("kind") not in ("bool_value", "number_value", "string_value"):
            yield Violation(f"template.kwargs[{key[:64]}]", "must be a bool, a number or a string", "INVALID_TYPE")


def _tool_rules(tools: Sequence[chat_pb2.Tool]) -> Iterator[Violation]:
    names: set[str] = set()
    for index, tool in enumerate(tools):
        at = f"tools[{index}].function"
        if tool.function.name in names:
            yield Violation(f"{at}.name", "must be unique")
        names.add(tool.function.name)
        if tool.function.parameters:
            text = tool.function.parameters
            wrong = _json_fault(text, object_only=True) or _ring_fault(json.loads(text))
            if wrong:
                yield Violation(f"{at}.parameters", wrong)


def _choice_rules(request: chat_pb2.ChatRequest) -> Iterator[Violation]:
    names = {tool.function.name for tool in request.tools}
    choice = request.tool_choice
    kind = choice.WhichOneof("choice")
    forced = kind == "function" or chat_pb2.ToolChoice.MODE_REQUIRED in (choice.mode, choice.allowed.mode)
    if kind == "function" and choice.function not in names:
        yield Violation("tool_choice.function", "must be the name of one of the tools")
    for index, name in enumerate(choice.allowed.functions):
        if name not in names:
            yield Violation(f"tool_choice.allowed.functions[{index}]", "must be the name of one of the tools")
    if kind != "function" and forced and not names:
        yield Violation("tool_choice", "requires a call, and there are no tools")
    if forced and request.HasField("structured_output"):
        yield Violation("structured_output", "cannot hold together with a tool call that is required")


def _structured_rules(wanted: sampling_pb2.StructuredOutput) -> Iterator[Violation]:
    form = wanted.WhichOneof("form")
    if form == "json_schema":
        wrong = _json_fault(wanted.json_schema) or _ring_fault(json.loads(wanted.json_schema))
    elif form == "structural_tag":
        wrong = _json_fault(wanted.structural_tag, object_only=True)
    elif form in ("regex", "grammar"):
        wrong = "must not hold a NUL character" if "\0" in getattr(wanted, form) else ""
    else:
        return
    if wrong:
        yield Violation(f"structured_output.{form}", wrong)


def _json_fault(text: str, *, object_only: bool = False) -> str:
    """What is wrong with JSON text from a client, or "". Depth is counted before it is parsed, as parsing recurses."""
    depth = deepest = 0
    in_string = escaped = False
    for character in text:
        if in_string:
            in_string = escaped or character != '"'
            escaped = not escaped and character == "\\"
        elif character == '"':
            in_string = True
        elif character in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "}]":
            depth -= 1
    if deepest > _MAX_DEPTH:
        return f"must not nest deeper than {_MAX_DEPTH}"
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except ValueError:
        return "must be JSON"
    if object_only and not isinstance(value, dict):
        return "must be a JSON object"
    if not isinstance(value, dict | bool):
        return "must be a JSON Schema: an object or a boolean"
    return ""


def _ring_fault(schema: Any) -> str:
    """References that only lead to each other describe nothing, and no output can conform to them.

    A schema that contains itself by way of a property or an item is fine: it is a list or a tree.
    """
    pending = [schema]
    while pending:
        node = pending.pop()
        seen: set[int] = set()
        target = node
        while isinstance(target, dict) and isinstance(target.get("$ref"), str):
            if id(target) in seen:
                return "must not hold references that only lead to each other"
            seen.add(id(target))
            target = _resolved(schema, target["$ref"])
        if isinstance(node, dict):
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
    return ""


def _resolved(schema: Any, reference: str) -> Any:
    """What a local reference (`#`, `#/$defs/a`) names; None where it names nothing here."""
    node = schema
    for part in reference.removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        node = node.get(key) if isinstance(node, dict) else None
    return node if reference.startswith("#") else None


def _refuse_constant(name: str) -> None:
    raise ValueError(name)  # NaN and the infinities are no JSON


def _ids(field: str, ids: Iterable[int], vocab_size: int) -> Iterator[Violation]:
    values = list(ids)
    if values and (min(values) < 0 or max(values) >= vocab_size):
        index = next(i for i, v in enumerate(values) if not 0 <= v < vocab_size)
        text = f"must be a token id from 0 to {vocab_size - 1}"
        yield Violation(f"{field}[{index}]", text, "OUT_OF_VOCABULARY")


def _set_paths(message: Any, path: Sequence[str], prefix: str = "") -> Iterator[str]:
    """Paths of the set fields that `path` names, through repeated fields: `messages[1].content[0].image`."""
    name, rest = path[0], path[1:]
    field = message.DESCRIPTOR.fields_by_name.get(name)
    if field is None:
        return
    if field.is_repeated:
        for index, item in enumerate(getattr(message, name)):
            at = f"{prefix}{name}[{index}]"
            if rest:
                yield from _set_paths(item, rest, f"{at}.")
            else:
                yield at
    elif field.has_presence:
        if not message.HasField(name):
            return
        if rest:
            yield from _set_paths(getattr(message, name), rest, f"{prefix}{name}.")
        # A switch that is off asks for nothing.
        elif field.type != field.TYPE_BOOL or getattr(message, name):
            yield f"{prefix}{name}"
    elif getattr(message, name):
        yield f"{prefix}{name}"


def _violation(found: protovalidate.Violation) -> Violation:
    proto = found.proto
    path = ""
    if proto.field is not None:
        for element in proto.field.elements:
            path += f".{element.field_name}" if path else str(element.field_name)
            subscript = element.subscript
            if subscript is not None:
                path += f"[{subscript.value}]"
    rule = str(proto.rule_id or "")
    last = rule.rsplit(".", 1)[-1]
    kind = _KINDS.get(last) or _range_kind(last, found)
    text = str(proto.message or "is not valid")
    return Violation(path, text, kind)


def _range_kind(rule: str, found: protovalidate.Violation) -> str:
    """Kind of a rule with two ends, by the side on which the value is."""
    ends = rule.split("_")
    if not set(ends) <= {"gte", "gt", "lte", "lt"}:
        return "INVALID_VALUE"
    value, low = found.field_value, found.rule_value  # the rule's value is its first end's
    if isinstance(value, int | float) and isinstance(low, int | float) and value == value:
        return "BELOW_MIN" if value <= low else "ABOVE_MAX"
    return "INVALID_VALUE"  # NaN, or something else than a number
