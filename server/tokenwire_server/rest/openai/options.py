"""Parameters that every endpoint reads alike: the model, streaming, the service tier."""

from __future__ import annotations

from dataclasses import dataclass

from tokenwire_server.rest.openai.errors import OpenAIError
from tokenwire_server.rest.openai.fields import Fields, invalid

__all__ = ["StreamOptions", "read_model", "read_service_tier", "read_stream"]

_TIERS = ("auto", "default", "flex", "scale", "priority")


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a stream reports usage."""

    usage: bool = False
    """A last chunk with usage, and `"usage":null` in the others."""
    continuous_usage: bool = False
    """vLLM's: usage so far in each chunk."""


def read_model(fields: Fields) -> str:
    """`model`, which OpenAI requires."""
    model = fields.string("model")
    if not model:
        raise OpenAIError(400, "you must provide a model parameter", param="model")
    return model


def read_stream(fields: Fields) -> StreamOptions | None:
    """`stream` and `stream_options`; None where the reply is one body."""
    stream = fields.boolean("stream")
    options = fields.object("stream_options")
    if not stream:
        if options is not None:
            raise invalid("stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
        return None
    if options is None:
        return StreamOptions()
    usage = bool(options.boolean("include_usage"))
    return StreamOptions(usage=usage, continuous_usage=usage and bool(options.boolean("continuous_usage_stats")))


def read_service_tier(fields: Fields) -> str | None:
    """What `service_tier` of the reply says: there is one tier, and it is named only to who asked."""
    return None if fields.choice("service_tier", _TIERS) is None else "default"
