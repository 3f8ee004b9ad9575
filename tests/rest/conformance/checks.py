"""The vocabulary of `check`, for one answer. Each function raises AssertionError with what is wrong."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from tests.rest.conformance.target import Answer

__all__ = [
    "at_path",
    "check_error",
    "check_finite",
    "check_headers",
    "check_json",
    "check_output_schema",
    "close_floats",
]

_ENVELOPE = {"message", "type", "param", "code"}


def fail_unless(holds: object, words: str) -> None:
    """Raises with the words unless it holds."""
    if not holds:
        raise AssertionError(words)


def _is(value: Any, wanted: Any) -> bool:
    """The rules of `type`, `param` and `code` in an error."""
    if isinstance(wanted, list):
        return any(_is(value, one) for one in wanted)
    if wanted == "*":
        return True
    if wanted == "+":
        return isinstance(value, str) and value != ""
    if isinstance(wanted, str) and wanted.startswith("~"):
        return isinstance(value, str) and value.startswith(wanted[1:])
    return bool(value == wanted)


def check_error(answer: Answer, wanted: Mapping[str, Any]) -> None:
    """The envelope, and what its keys must be."""
    kind = answer.headers.get("content-type", "")
    fail_unless(kind.startswith("application/json"), f"an error with content type {kind!r}")
    fail_unless(answer.headers.get("x-request-id"), "no x-request-id")
    body = answer.json()
    fail_unless(isinstance(body, dict) and set(body) == {"error"}, f"no envelope: {answer.text[:200]}")
    error = body["error"]
    fail_unless(isinstance(error, dict) and set(error) == _ENVELOPE, f"keys of the error: {sorted(error)}")
    fail_unless(isinstance(error["message"], str) and error["message"], "an empty message")
    for name, rule in wanted.items():
        fail_unless(_is(error[name], rule), f"{name} is {error[name]!r}, not {rule!r}")


def check_headers(answer: Answer, wanted: Mapping[str, str]) -> None:
    """Headers by exact value, `~part`, `+`, `absent` or `int>=1`."""
    for name, rule in wanted.items():
        value = answer.headers.get(name)
        if rule == "absent":
            fail_unless(value is None, f"{name}: {value!r}")
        elif rule == "+":
            fail_unless(value, f"no {name}")
        elif rule == "int>=1":
            fail_unless(value is not None and value.isdigit() and int(value) >= 1, f"{name}: {value!r}")
        elif rule.startswith("~"):
            fail_unless(value is not None and rule[1:] in value, f"{name}: {value!r}")
        else:
            fail_unless(value == rule, f"{name}: {value!r}")


def at_path(value: Any, path: str) -> list[Any]:
    """The values at a dotted path; `*` is every element. What is not there is absent from the list."""
    found = [value]
    for part in path.split("."):
        following: list[Any] = []
        for one in found:
            if part == "*":
                following.extend(one if isinstance(one, list) else one.values())
            elif isinstance(one, list) and part.isdigit() and int(part) < len(one):
                following.append(one[int(part)])
            elif isinstance(one, dict) and part in one:
                following.append(one[part])
        found = following
    return found


_TYPES: dict[str, type] = {"string": str, "integer": int, "array": list, "object": dict, "boolean": bool, "list": list}


def check_json(body: Any, rules: list[Mapping[str, Any]], models: Mapping[str, str]) -> None:
    """Rules about paths of a body; `base64_float32_close_to` is the runner's."""
    for rule in rules:
        path = rule["path"]
        values = at_path(body, path)
        fail_unless(values, f"nothing at {path}")
        for name, wanted in rule.items():
            if name not in ("path", "base64_float32_close_to"):
                if isinstance(wanted, str) and wanted.startswith("$"):
                    wanted = models.get(wanted[1:], wanted)
                _check_rule(name, wanted, values, body, path)


def _check_rule(name: str, wanted: Any, values: list[Any], body: Any, path: str) -> None:
    first = values[0]
    words = f"{path} is {json.dumps(first)[:120]}: not {name} {wanted!r}"
    if name == "equals":
        fail_unless(first == wanted, words)
    elif name == "equals_path":
        fail_unless(first == at_path(body, wanted)[0], words)
    elif name == "null":
        fail_unless(first is None, words)
    elif name == "type":
        fail_unless(isinstance(first, _TYPES[wanted]), words)
    elif name == "length":
        fail_unless(len(first) == wanted, words)
    elif name == "length_prompt_plus":
        fail_unless(len(first) == body["usage"]["prompt_tokens"] + wanted, words)
    elif name == "min":
        fail_unless(first >= wanted, words)
    elif name == "contains":
        fail_unless(wanted in first, words)
    elif name == "non_empty":
        fail_unless(len(first) > 0, words)
    elif name == "non_decreasing":
        fail_unless(all(a <= b for a, b in pairwise(first)), words)
    elif name == "all_distinct":
        fail_unless(len({json.dumps(one) for one in values}) == len(values), words)
    elif name == "parses_as":
        fail_unless(isinstance(json.loads(first), _TYPES[wanted]), words)
    else:
        raise NotImplementedError(f"the rule {name} of json")


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _numbers(one)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def check_finite(bodies: list[Any]) -> None:
    """No number is NaN or infinite."""
    for number in _numbers(bodies):
        fail_unless(math.isfinite(number), f"the number {number}")


def check_output_schema(body: Any, schema: Mapping[str, Any]) -> None:
    """The text of a response is JSON with the keys that a flat schema asks."""
    texts = at_path(body, "output.*.content.*.text")
    value = json.loads("".join(texts))
    for name in schema.get("required", ()):
        kind = _TYPES[schema["properties"][name]["type"]]
        fail_unless(isinstance(value.get(name), kind), f"{name} of the output is {value.get(name)!r}")
    if schema.get("additionalProperties") is False:
        fail_unless(set(value) <= set(schema["properties"]), f"keys of the output: {sorted(value)}")


def close_floats(encoded: str, numbers: list[float]) -> None:
    """Base64 of little-endian float32 says about the same as a list of numbers."""
    data = base64.b64decode(encoded, validate=True)
    fail_unless(re.fullmatch(r"[A-Za-z0-9+/]*=*", encoded), "not standard base64")
    fail_unless(len(data) == 4 * len(numbers), f"{len(data)} bytes for {len(numbers)} numbers")
    decoded = struct.unpack(f"<{len(numbers)}f", data)
    fail_unless(
        all(math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-4) for a, b in zip(decoded, numbers, strict=True)),
        "the two encodings differ",
    )
