"""`prompt` of completions and `input` of embeddings: a text, texts, token ids, or lists of token ids."""

from __future__ import annotations

from typing import Any

from tokenwire_server.rest.openai.errors import OpenAIError
from tokenwire_server.rest.openai.fields import Fields, check_integers, invalid

__all__ = ["Prompt", "read_prompts"]

Prompt = str | list[int]
"""A text or its token ids."""


def read_prompts(fields: Fields, name: str, max_items: int) -> list[Prompt]:
    """Reads all forms into a list of at least one prompt, none of them empty.

    Args:
        fields: The request.
        name: The parameter.
        max_items: Largest number of prompts.

    Raises:
        OpenAIError: 400 naming the parameter.
    """
    value = fields.get(name)
    if value is None:
        raise fields.missing(name)
    if isinstance(value, str):
        return [_text(value, name)]
    if not isinstance(value, list):
        fields.wrong_type(name, "a string or an array")
    if not value:
        raise fields.empty_array(name)
    if isinstance(value[0], int | float) and not isinstance(value[0], bool):
        return [check_integers(name, value)]
    return [_item(item, fields, name) for item in fields.array(name, max_items) or ()]


def _item(item: Any, fields: Fields, name: str) -> Prompt:
    if isinstance(item, str):
        return _text(item, name)
    if not isinstance(item, list):
        fields.wrong_type(name, "a string, an array of strings, an array of integers, or an array of such arrays")
    if not item:
        raise fields.empty_array(name)
    return check_integers(name, item)


def _text(text: str, name: str) -> str:
    if not text:
        raise _empty(name)
    return text


def _empty(name: str) -> OpenAIError:
    bound = "Expected a string with minimum length 1, but got an empty string instead."
    return invalid(name, f"Invalid '{name}': empty string. {bound}", "empty_string")
