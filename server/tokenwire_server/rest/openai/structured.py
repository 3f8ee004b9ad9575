"""`response_format`, vLLM's `structured_outputs` and the older `guided_*` -> the contract's structured output."""

from __future__ import annotations

from typing import Any

import orjson

from tokenwire.v1 import sampling_pb2
from tokenwire_server.rest.openai.fields import Fields, invalid, unsupported
from tokenwire_server.rest.openai.params import STRUCTURED_PARAMS

__all__ = ["json_text", "read_structured_output"]

_FORMS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
_REFUSED = ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")


def json_text(fields: Fields, name: str) -> str:
    """A JSON value as text with its keys in the order they came."""
    try:
        return orjson.dumps(fields.get(name)).decode()
    except TypeError as error:  # orjson writes fewer levels than it reads
        raise invalid(fields.at(name), f"Invalid '{fields.at(name)}': nested too deeply.") from error


def read_structured_output(fields: Fields) -> sampling_pb2.StructuredOutput | None:
    """The one constraint of a request, or None.

    Raises:
        OpenAIError: More than one constraint, or a malformed one.
    """
    found: sampling_pb2.StructuredOutput | None = None
    for name in STRUCTURED_PARAMS:
        if fields.get(name) is None:
            continue
        this = _read(fields, name)
        if this is not None and found is not None:
            raise invalid(name, f"Invalid '{name}': only one constraint of the output is possible.")
        found = this or found
    return found


def _read(fields: Fields, name: str) -> sampling_pb2.StructuredOutput | None:
    if name == "response_format":
        return _response_format(fields.required_object(name), fields)
    if name == "structured_outputs":
        return _structured_outputs(fields.required_object(name))
    return _form(fields, name, name.removeprefix("guided_"))


def _response_format(spec: Fields, fields: Fields) -> sampling_pb2.StructuredOutput | None:
    spec.required_string("type")
    kind = spec.choice("type", ("text", "json_object", "json_schema", "structural_tag"))
    if kind == "json_object":
        return sampling_pb2.StructuredOutput(json_object=True)
    if kind == "structural_tag":
        return sampling_pb2.StructuredOutput(structural_tag=json_text(fields, "response_format"))
    if kind == "json_schema":
        schema = spec.required_object("json_schema")
        schema.boolean("strict")
        schema.string("name")
        schema.required_object("schema")
        return sampling_pb2.StructuredOutput(json_schema=json_text(schema, "schema"))
    return None


def _structured_outputs(spec: Fields) -> sampling_pb2.StructuredOutput | None:
    for name in _REFUSED:
        if spec.get(name):
            raise unsupported(spec.at(name))
    names = [name for name in _FORMS if spec.get(name) not in (None, False)]
    if len(names) > 1:
        raise invalid("structured_outputs", "Invalid 'structured_outputs': only one constraint is possible.")
    return _form(spec, names[0], names[0]) if names else None


def _form(spec: Fields, name: str, form: str) -> sampling_pb2.StructuredOutput:
    output = sampling_pb2.StructuredOutput()
    value: Any = spec.get(name)
    if form == "json":
        if not isinstance(value, str | dict):
            spec.wrong_type(name, "an object or a string")
        output.json_schema = value if isinstance(value, str) else json_text(spec, name)
    elif form == "choice":
        choices = spec.strings(name, 256) or []
        if not choices:
            raise spec.empty_array(name)
        output.choice.choices.extend(choices)
    elif form == "json_object":
        output.json_object = bool(spec.boolean(name))
    elif form == "structural_tag":
        output.structural_tag = value if isinstance(value, str) else json_text(spec, name)
    else:
        setattr(output, form, spec.required_string(name))
    if not output.WhichOneof("form") or value == "":
        raise invalid(spec.at(name), f"Invalid '{spec.at(name)}': must not be empty.", "empty_string")
    return output
