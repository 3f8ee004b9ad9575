"""`/v1/embeddings`: the request -> `EmbedRequest`, and `EmbedResponse` -> the reply."""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass
from typing import Any

from tokenwire.v1 import embedding_pb2
from tokenwire_server.backend import sane_request_id
from tokenwire_server.rest.openai.fields import INT32_MIN, Fields, invalid, unsupported
from tokenwire_server.rest.openai.options import read_model
from tokenwire_server.rest.openai.prompts import read_prompts
from tokenwire_server.rest.openai.sampling import refuse_unsupported

__all__ = ["EmbeddingCall", "embedding_reply", "read_embedding"]

_MAX_INPUTS = 2048
_UNSUPPORTED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("normalize", (True,)),
    ("use_activation", (True,)),
    ("embed_dtype", ("float32",)),
    ("endianness", ("little", "native")),
)


@dataclass(frozen=True, slots=True)
class EmbeddingCall:
    """A translated request, and the form of its vectors."""

    request: embedding_pb2.EmbedRequest
    base64: bool = False
    """Little-endian float32 in base64 in place of a list of numbers."""


def read_embedding(body: dict[str, Any]) -> EmbeddingCall:
    """Translates a request.

    Raises:
        OpenAIError: 400 naming the parameter.
    """
    fields = Fields(body)
    request = embedding_pb2.EmbedRequest(model=read_model(fields))
    for prompt in read_prompts(fields, "input", _MAX_INPUTS):
        one = request.inputs.add()
        if isinstance(prompt, str):
            one.text = prompt
        else:
            one.token_ids.ids.extend(prompt)
    refuse_unsupported(fields, _UNSUPPORTED)
    if fields.boolean("add_special_tokens") is False:
        raise unsupported("add_special_tokens")
    for name in ("dimensions", "truncate_prompt_tokens"):
        value = fields.integer(name, 1)
        if value is not None:
            setattr(request, name, value)
    priority = fields.integer("priority", INT32_MIN)
    if priority is not None:
        request.priority = priority
    request_id = fields.string("request_id") or ""
    if request_id and sane_request_id(request_id) is None:
        raise invalid("request_id", "Invalid 'request_id': expected 1 to 128 of the characters A-Za-z0-9._-.")
    request.request_id = request_id
    encoding = fields.choice("encoding_format", ("float", "base64"))
    return EmbeddingCall(request, base64=encoding == "base64")


def embedding_reply(response: embedding_pb2.EmbedResponse, call: EmbeddingCall) -> dict[str, Any]:
    """The list object."""
    tokens = response.usage.prompt_token_count
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": one.index, "embedding": _vector(one, call)} for one in response.embeddings
        ],
        "model": response.model or call.request.model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _vector(one: embedding_pb2.Embedding, call: EmbeddingCall) -> Any:
    if not call.base64:
        return list(one.values)
    return base64.b64encode(struct.pack(f"<{len(one.values)}f", *one.values)).decode()
