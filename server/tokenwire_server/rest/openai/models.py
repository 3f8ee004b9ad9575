"""`/v1/models`: `Model` -> OpenAI's model object."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tokenwire.v1 import model_pb2

__all__ = ["model_list", "model_object"]

_OWNER = "tokenwire"


def model_object(model: model_pb2.Model) -> dict[str, Any]:
    """One model; `max_model_len` and, for an adapter, `parent` are vLLM's additions."""
    reply: dict[str, Any] = {
        "id": model.id,
        "object": "model",
        "created": model.create_time.seconds,
        "owned_by": _OWNER,
    }
    if model.max_model_len:
        reply["max_model_len"] = model.max_model_len
    if model.parent:
        reply["parent"] = model.parent
    return reply


def model_list(models: Iterable[model_pb2.Model]) -> dict[str, Any]:
    """The list object."""
    return {"object": "list", "data": [model_object(one) for one in models]}
