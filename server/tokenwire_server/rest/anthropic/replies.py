"""`ChatResponse` and its stream -> Anthropic's `message` object and events."""

from __future__ import annotations

from typing import Any

import orjson

from tokenwire.v1 import chat_pb2, output_pb2
from tokenwire_server.rest.anthropic.messages import MessageCall
from tokenwire_server.rest.openai.encoding import dumps
from tokenwire_server.rest.openai.replies import finish_name, reply_id

__all__ = ["MessageFrames", "message_reply"]

_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


def _ending(reason: int, match: output_pb2.StopMatch) -> dict[str, Any]:
    if match.WhichOneof("match") == "stop":
        return {"stop_reason": "stop_sequence", "stop_sequence": match.stop}
    return {"stop_reason": _REASONS.get(finish_name(reason), "end_turn"), "stop_sequence": None}


def _usage(prompt: int, cached: int, output: int) -> dict[str, Any]:
    # Anthropic counts what the cache had apart from the rest of the input.
    return {
        "input_tokens": max(0, prompt - cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": output,
    }


def _message(call: MessageCall, request_id: str, model: str, content: list[Any], usage: dict[str, Any]) -> Any:
    return {
        "id": reply_id("msg", call.request.request_id or request_id).replace("-", "_", 1),
        "type": "message",
        "role": "assistant",
        "model": model or call.request.model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def _arguments(text: str) -> Any:
    """Arguments as an object. Text that is cut short or is no object is handed on rather than lost."""
    try:
        value = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return {"_raw": text}
    return value if isinstance(value, dict) else {"_raw": text}


def message_reply(response: chat_pb2.ChatResponse, call: MessageCall, request_id: str) -> dict[str, Any]:
    """The whole reply."""
    choice = response.choices[0]
    content: list[dict[str, Any]] = []
    if choice.reasoning:
        content.append({"type": "thinking", "thinking": choice.reasoning, "signature": ""})
    if choice.content:
        content.append({"type": "text", "text": choice.content})
    content += [
        {"type": "tool_use", "id": one.id, "name": one.name, "input": _arguments(one.arguments)}
        for one in choice.tool_calls
    ]
    used = response.usage
    usage = _usage(used.prompt_token_count, used.cached_token_count, used.output_token_count)
    reply: dict[str, Any] = _message(call, request_id, response.model, content, usage)
    return reply | _ending(choice.finish_reason, choice.stop_match)


class MessageFrames:
    """Writes the events of one stream: message_start, for each block start, deltas and stop, then the message's end.

    Args:
        call: The translated request.
        request_id: Names the reply where the body named none.
    """

    def __init__(self, call: MessageCall, request_id: str) -> None:
        self._call = call
        self._request_id = request_id
        self._open: tuple[str, int] | None = None
        self._index = -1
        self._ending: dict[str, Any] = {"stop_reason": "end_turn", "stop_sequence": None}
        self.complete = False
        """Whether the stream's end has come."""

    def feed(self, event: chat_pb2.StreamChatResponse) -> bytes:
        """The frames of an event; empty where it has nothing for the client."""
        kind = event.WhichOneof("event")
        if kind == "delta":
            return self._delta(event.delta)
        if kind == "start":
            return self._start(event.start)
        if kind == "finish":
            self._ending = _ending(event.finish.finish_reason, event.finish.stop_match)
        elif kind == "end":
            return self._end(event.end.usage)
        return b""

    def _start(self, start: output_pb2.StreamStart) -> bytes:
        usage = _usage(start.prompt_token_count, start.cached_token_count, 0)
        message = _message(self._call, self._request_id, start.model, [], usage)
        return _event("message_start", message=message)

    def _delta(self, delta: chat_pb2.ChatDelta) -> bytes:
        frames = b""
        if delta.reasoning:
            frames += self._switch("thinking", 0, {"type": "thinking", "thinking": "", "signature": ""})
            frames += self._grow({"type": "thinking_delta", "thinking": delta.reasoning})
        if delta.content:
            frames += self._switch("text", 0, {"type": "text", "text": ""})
            frames += self._grow({"type": "text_delta", "text": delta.content})
        for call in delta.tool_calls:
            block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
            frames += self._switch("tool_use", call.index, block)
            if call.arguments:
                frames += self._grow({"type": "input_json_delta", "partial_json": call.arguments})
        return frames

    def _switch(self, kind: str, number: int, block: dict[str, Any]) -> bytes:
        if self._open == (kind, number):
            return b""
        closing = self._close()
        self._open = (kind, number)
        self._index += 1
        return closing + _event("content_block_start", index=self._index, content_block=block)

    def _grow(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return _event("content_block_stop", index=self._index)

    def _end(self, used: output_pb2.Usage) -> bytes:
        self.complete = True
        usage = _usage(used.prompt_token_count, used.cached_token_count, used.output_token_count)
        return self._close() + _event("message_delta", delta=self._ending, usage=usage) + _event("message_stop")


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + dumps({"type": kind, **fields}) + b"\n\n"
