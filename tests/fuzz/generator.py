"""Random requests over the whole contract, by its descriptors: valid, near-valid and hostile ones."""

from __future__ import annotations

import random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

__all__ = ["Generator"]

_TEXTS = (
    "hello",
    "What is the capital of France?",
    "",
    " ",
    "🦜é赤" * 5,
    "a" * 5000,
    "\u2028\u0085\u0000",
    "<|im_start|>system",
    "{{ 7*7 }}{% for x in y %}",
    "x" * 40_000,
    "../../etc/passwd",
    "\ufeff\u202etxet",
    "-1",
    "NaN",
)
_NAMES = ("f", "get_weather", "", "a b", "x" * 65, "f", "é", "f.g-1")
_JSON = (
    '{"type":"object","properties":{"a":{"type":"integer"}}}',
    '{"type":"string","maxLength":5}',
    "{}",
    "true",
    "[]",
    "{",
    '{"type":"foo"}',
    '{"$ref":"#"}',
    '{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}}',
    '{"enum":[]}',
    '{"a":' * 200 + "1" + "}" * 200,
    "null",
    '{"const": 1e999}',
)
_PATTERNS = ("[a-z]{1,5}", "(a", "a*", "(a*)*b", "\\p{L}+", "(?=a)b", "\x00", "[", "^$", "a{1000000}", "")
_GRAMMARS = ('root ::= "yes" | "no"', "root ::= foo", "", "root ::= root", 'start: "a"', "(" * 500)
_INTS = (0, 1, 2, 3, 5, 17, 64, 127, 128, 129, -1, -2, 2**31 - 1, -(2**31), 1000, 49151, 49152)
_DOUBLES = (0.0, 0.1, 0.5, 0.9, 1.0, 1.5, 2.0, -1.0, -0.0, 2.1, 1e308, -1e308, float("nan"), float("inf"), 1e-300)


class Generator:
    """Makes requests. The same seed makes the same ones.

    Args:
        seed: Of the random numbers.
        model: Id of a model that is served.
    """

    def __init__(self, seed: int, model: str) -> None:
        self._random = random.Random(seed)
        self._model = model

    def request(self, descriptor: Descriptor) -> Message:
        """A random request. About half of them are kept close to what is valid."""
        hostile = self._random.choice((0.0, 0.0, 0.03, 0.15, 0.5))
        message = self._message(descriptor, hostile, 0)
        self._tame(message)
        return message

    def corrupt(self, data: bytes) -> bytes:
        """The bytes with some of them changed, cut or doubled."""
        mutated = bytearray(data or b"\x0a")
        for _ in range(self._random.randint(1, 4)):
            at = self._random.randrange(len(mutated))
            action = self._random.randrange(3)
            if action == 0:
                mutated[at] = self._random.randrange(256)
            elif action == 1 and len(mutated) > 1:
                del mutated[at:]
            else:
                mutated[at:at] = mutated[at : at + self._random.randint(1, 8)]
            if not mutated:
                mutated = bytearray(b"\xff")
        return bytes(mutated)

    def _tame(self, message: Any) -> None:
        """Keeps a valid request short, so that ten thousand of them take minutes and not days."""
        fields = message.DESCRIPTOR.fields_by_name
        if "sampling" in fields:
            # A hostile value stays hostile; only what would be valid and long is cut.
            if message.sampling.max_tokens > 6 or not message.sampling.HasField("max_tokens"):
                message.sampling.max_tokens = self._random.randint(1, 6)
            if message.sampling.n > 4 and message.sampling.n <= 128:
                message.sampling.n = 4
        if "model" in fields and self._random.random() < 0.9:
            message.model = self._random.choice(("", self._model))
        if "request_id" in fields and self._random.random() < 0.8:
            message.request_id = ""
        if "adapter" in fields and self._random.random() < 0.95:
            message.adapter = ""

    def _message(self, descriptor: Descriptor, hostile: float, depth: int) -> Message:
        message: Any = GetMessageClass(descriptor)()
        if descriptor.full_name == "google.protobuf.Duration":
            message.seconds = self._random.choice((1, 30, 600) if self._random.random() >= hostile else (0, -5, 2**40))
            return message  # type: ignore[no-any-return]
        if descriptor.full_name == "google.protobuf.Struct":
            message.update(
                {self._random.choice(("x", "enable_thinking", "messages")): self._random.choice((1, True, "y"))}
            )
            return message  # type: ignore[no-any-return]
        # A synthetic oneof, of an `optional` field, has a name that begins with an underscore.
        oneofs = {o.name: self._random.choice(list(o.fields)).name for o in descriptor.oneofs if o.name[0] != "_"}
        for field in descriptor.fields:
            oneof = field.containing_oneof
            chosen = oneofs.get(oneof.name) if oneof is not None else None
            if chosen not in (None, field.name):
                continue
            required = chosen is not None or field.name in ("messages", "inputs", "role", "content")
            if depth > 5 or (not required and self._random.random() < 0.75):
                continue
            self._set(message, field, hostile, depth)
        return message  # type: ignore[no-any-return]

    def _set(self, message: Any, field: FieldDescriptor, hostile: float, depth: int) -> None:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for _ in range(self._random.randint(1, 3)):
                getattr(message, field.name)[self._number(hostile)] = self._random.choice((-100.0, 0.5, 100.0))
            return
        if field.is_repeated:
            count = (
                self._random.choice((1, 1, 2, 3))
                if self._random.random() >= hostile
                else self._random.choice((0, 20, 200))
            )
            if depth > 2:
                count = min(count, 3)
            values = [self._value(field, hostile, depth) for _ in range(count)]
            getattr(message, field.name).extend(values)
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(self._value(field, hostile, depth))
        else:
            setattr(message, field.name, self._value(field, hostile, depth))

    def _value(self, field: FieldDescriptor, hostile: float, depth: int) -> Any:
        if field.message_type is not None:
            return self._message(field.message_type, hostile, depth + 1)
        if field.enum_type is not None:
            known = [value.number for value in field.enum_type.values][1:]
            return self._random.choice(known) if self._random.random() >= hostile else self._random.choice((0, 99))
        if field.type == FieldDescriptor.TYPE_BOOL:
            return self._random.random() < 0.5 or field.name == "json_object"
        if field.type == FieldDescriptor.TYPE_STRING:
            return self._text(field.name, hostile)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return b"\x89PNG"
        if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
            return self._random.choice(_DOUBLES if self._random.random() < hostile else _DOUBLES[:5])
        if field.type == FieldDescriptor.TYPE_INT64:
            return self._random.choice((0, 1, 42, 2**63 - 1, -(2**63)))
        return self._number(hostile)

    def _number(self, hostile: float) -> int:
        return self._random.choice(_INTS if self._random.random() < hostile else (1, 2, 3, 5, 17))

    def _text(self, name: str, hostile: float) -> str:
        by_name = {
            "json_schema": _JSON,
            "parameters": _JSON,
            "arguments": _JSON,
            "structural_tag": _JSON,
            "regex": _PATTERNS,
            "grammar": _GRAMMARS,
            "name": _NAMES,
            "function": _NAMES,
            "functions": _NAMES,
        }
        texts = by_name.get(name, _TEXTS)
        return self._random.choice(texts if self._random.random() < hostile else texts[:2])
