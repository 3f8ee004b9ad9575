"""What replies of chat and completions share: ids, usage, finish reasons, logprobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from tokenwire.v1 import output_pb2

__all__ = [
    "ID_PREFIX",
    "chat_logprobs",
    "finish_name",
    "floor",
    "prompt_logprobs",
    "reply_id",
    "stop_reason",
    "usage_dict",
]

ID_PREFIX = "req_"
"""Prefix of our request ids, which a reply's id leaves out."""

_FINISH_NAMES: Mapping[int, str] = MappingProxyType(
    {
        output_pb2.FINISH_REASON_STOP: "stop",
        output_pb2.FINISH_REASON_LENGTH: "length",
        output_pb2.FINISH_REASON_TOOL_CALLS: "tool_calls",
        output_pb2.FINISH_REASON_CONTENT_FILTER: "content_filter",
    }
)

_FLOOR = -9999.0


def reply_id(kind: str, request_id: str) -> str:
    """Id of a reply, such as `chatcmpl-1f...`: the request's, so that a log line is found from either."""
    return f"{kind}-{request_id.removeprefix(ID_PREFIX)}"


def finish_name(reason: int) -> str:
    """OpenAI's word. Its list is closed: whatever else cut an output short is `length`."""
    return _FINISH_NAMES.get(reason, "length")


def stop_reason(match: output_pb2.StopMatch) -> str | int | None:
    """The value of vLLM's `stop_reason`: the stop text or token id that ended the output; None for its own end."""
    kind = match.WhichOneof("match")
    if kind == "stop":
        return match.stop
    return match.stop_token_id if kind == "stop_token_id" else None


def usage_dict(usage: output_pb2.Usage) -> dict[str, Any]:
    """`usage`."""
    return {
        "prompt_tokens": usage.prompt_token_count,
        "completion_tokens": usage.output_token_count,
        "total_tokens": usage.prompt_token_count + usage.output_token_count,
        "prompt_tokens_details": {"cached_tokens": usage.cached_token_count},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_token_count},
    }


def floor(logprob: float) -> float:
    """A number that JSON can write: NaN and -Infinity become -9999, which OpenAI uses for "none"."""
    return logprob if logprob > _FLOOR else _FLOOR


def chat_logprobs(tokens: Iterable[output_pb2.TokenLogprob]) -> dict[str, Any]:
    """`logprobs` of a chat choice."""
    content = [_chat_token(one) | {"top_logprobs": [_chat_token(top) for top in one.top]} for one in tokens]
    return {"content": content, "refusal": None}


def _chat_token(one: output_pb2.TokenLogprob | output_pb2.TopLogprob) -> dict[str, Any]:
    return {"token": one.token, "logprob": floor(one.logprob), "bytes": list(one.token_bytes)}


def prompt_logprobs(tokens: Iterable[output_pb2.TokenLogprob]) -> list[dict[str, Any] | None]:
    """The value of vLLM's `prompt_logprobs`: for each token of the prompt what was likely there, by token id."""
    entries: list[dict[str, Any] | None] = []
    for one in tokens:
        if not one.HasField("logprob"):
            entries.append(None)
            continue
        likely: list[output_pb2.TokenLogprob | output_pb2.TopLogprob] = [one, *one.top]
        entries.append({str(it.token_id): _prompt_token(it) for it in likely})
    return entries


def _prompt_token(one: output_pb2.TokenLogprob | output_pb2.TopLogprob) -> dict[str, Any]:
    return {"logprob": floor(one.logprob), "rank": one.rank or None, "decoded_token": one.token}
