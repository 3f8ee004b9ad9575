"""`StreamChatResponse` events -> SSE frames of `chat.completion.chunk`.

A frame is constant bytes around the JSON of the new text: about a microsecond, where a pydantic chunk takes eight.
"""

from __future__ import annotations

from typing import Any

from tokenwire.v1 import chat_pb2, output_pb2
from tokenwire_server.rest.openai.chat import ChatCall
from tokenwire_server.rest.openai.encoding import dumps
from tokenwire_server.rest.openai.replies import chat_logprobs, reply_id, stop_reason
from tokenwire_server.rest.openai.usage import UsageTail

__all__ = ["ChatFrames"]

_ROLE = b'"role":"assistant","content":"","refusal":null}'


class ChatFrames:
    """Writes the frames of one stream.

    Args:
        call: The translated request.
        request_id: Names the reply where the body named none.
    """

    def __init__(self, call: ChatCall, request_id: str) -> None:
        self._call = call
        self._id = reply_id("chatcmpl", call.request.request_id or request_id)
        self._head = b""
        self._heads: list[bytes] = []
        self._usage = UsageTail(call.stream)
        self._no_extras = b',"logprobs":null' if call.logprobs else b""
        self._extras = call.logprobs or call.token_ids or self._usage.continuous
        self._plain_end = b"}" + self._no_extras + b',"finish_reason":null}]' + self._usage.tail
        self.complete = False
        """Whether the stream's end has come: one without it did not end well."""

    def feed(self, event: chat_pb2.StreamChatResponse) -> bytes:
        """The frames of an event; empty where it has nothing for the client."""
        kind = event.WhichOneof("event")
        if kind == "delta":
            return self._delta(event.delta)
        if kind == "start":
            return self._start(event.start)
        if kind == "finish":
            return self._finish(event.finish)
        if kind == "end":
            self.complete = True
            return self._usage.last(self._head, event.end.usage)
        return b""

    def _start(self, start: output_pb2.StreamStart) -> bytes:
        call = self._call
        common: dict[str, Any] = {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": start.create_time.seconds,
            "model": start.model or call.request.model,
        }
        if call.service_tier:
            common["service_tier"] = call.service_tier
        self._usage.start(start)
        self._head = b"data: " + dumps(common)[:-1] + b',"choices":['
        self._heads = [self._head + b'{"index":%d,"delta":{' % index for index in range(call.n)]
        prompt = b',"prompt_token_ids":' + dumps(list(start.prompt.token_ids)) if call.token_ids else b""
        end = self._no_extras + b',"finish_reason":null}]' + prompt + self._usage.tail
        return b"".join(head + _ROLE + end for head in self._heads)

    def _delta(self, delta: chat_pb2.ChatDelta) -> bytes:
        head = self._heads[delta.index]
        content = delta.content
        if not self._extras and not delta.reasoning and not delta.tool_calls:
            return head + b'"content":' + dumps(content) + self._plain_end if content else b""
        parts = self._parts(delta)
        extras = self._no_extras
        if self._extras:
            self._usage.count(delta.token_ids)
            extras = self._extra_fields(delta)
            if not parts and (delta.logprobs or (self._call.token_ids and delta.token_ids)):
                parts.append(b'"content":""')
        end = b',"finish_reason":null}]' + self._usage.tail
        # Logprobs and ids belong to the whole delta and go with its first frame.
        frames = [head + part + b"}" + self._no_extras + end for part in parts]
        if parts:
            frames[0] = head + parts[0] + b"}" + extras + end
        return b"".join(frames)

    def _parts(self, delta: chat_pb2.ChatDelta) -> list[bytes]:
        """The insides of the delta objects, one a frame: reasoning, then content, then tool calls."""
        parts: list[bytes] = []
        if delta.reasoning:
            text = dumps(delta.reasoning)
            parts.append(b'"reasoning":%b,"reasoning_content":%b' % (text, text))
        if delta.content:
            parts.append(b'"content":' + dumps(delta.content))
        for call in delta.tool_calls:
            if self._call.legacy_functions:
                parts += _function_parts(call)
            else:
                parts += _tool_parts(call)
        return parts

    def _extra_fields(self, delta: chat_pb2.ChatDelta) -> bytes:
        extras = self._no_extras
        if self._call.logprobs and delta.logprobs:
            extras = b',"logprobs":' + dumps(chat_logprobs(delta.logprobs))
        if self._call.token_ids:
            extras += b',"token_ids":' + dumps(list(delta.token_ids))
        return extras

    def _finish(self, finish: output_pb2.OutputFinish) -> bytes:
        reason = dumps(self._call.finish(finish.finish_reason))
        stop = stop_reason(finish.stop_match)
        extra = b"" if stop is None else b',"stop_reason":' + dumps(stop)
        end = b"}" + self._no_extras + b',"finish_reason":' + reason + extra + b"}]" + self._usage.tail
        return self._heads[finish.index] + end


def _tool_parts(call: chat_pb2.ToolCallDelta) -> list[bytes]:
    """Id and name once, then only arguments, and never an empty piece of them: accumulators concatenate all of it."""
    parts: list[bytes] = []
    if call.name:
        first = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        parts.append(b'"tool_calls":' + dumps([{"index": call.index, **first}]))
    if call.arguments:
        parts.append(b'"tool_calls":' + dumps([{"index": call.index, "function": {"arguments": call.arguments}}]))
    return parts


def _function_parts(call: chat_pb2.ToolCallDelta) -> list[bytes]:
    if call.index:
        return []  # the older shape holds one call
    parts: list[bytes] = []
    if call.name:
        parts.append(b'"function_call":' + dumps({"name": call.name, "arguments": ""}))
    if call.arguments:
        parts.append(b'"function_call":' + dumps({"arguments": call.arguments}))
    return parts
