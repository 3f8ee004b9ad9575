"""`StreamChatResponse` events -> the events of a streamed response, in OpenAI's order.

created, in_progress; for each item: added, its parts and deltas, done; completed or incomplete. There is no `[DONE]`.
"""

from __future__ import annotations

from typing import Any

from tokenwire.v1 import chat_pb2, output_pb2
from tokenwire_server.rest.openai.encoding import dumps
from tokenwire_server.rest.openai.errors import OpenAIError
from tokenwire_server.rest.openai.responses import ResponseCall
from tokenwire_server.rest.openai.responses_reply import ResponseShapes, logprob_list, text_part

__all__ = ["ResponseFrames"]


class ResponseFrames:
    """Writes the frames of one stream.

    Args:
        call: The translated request.
        request_id: Names the reply where the body named none.
    """

    def __init__(self, call: ResponseCall, request_id: str) -> None:
        self._call = call
        self._request_id = request_id
        self._shapes = ResponseShapes(call, request_id, "", 0)
        self._output: list[dict[str, Any]] = []
        self._open: _Item | None = None
        self._logprobs: list[dict[str, Any]] = []
        self._number = 0
        self._ending: tuple[str, str | None] = ("completed", None)
        self.complete = False
        """Whether the stream's end has come."""

    def feed(self, event: chat_pb2.StreamChatResponse) -> bytes:
        """The frames of an event; empty where it has nothing for the client."""
        kind = event.WhichOneof("event")
        if kind == "delta":
            return self._delta(event.delta)
        if kind == "start":
            start = event.start
            self._shapes = ResponseShapes(self._call, self._request_id, start.model, start.create_time.seconds)
            response = self._shapes.response("in_progress", [])
            return self._event("response.created", response=response) + self._event(
                "response.in_progress", response=response
            )
        if kind == "finish":
            self._ending = self._shapes.ending(event.finish.finish_reason)
            return b""
        if kind == "end":
            return self._end(event.end)
        return b""

    def error(self, error: OpenAIError) -> bytes:
        """The last event of a stream that failed."""
        return self._event("error", code=error.code, message=error.message, param=error.param)

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = {"type": kind, **fields, "sequence_number": self._number}
        self._number += 1
        return b"event: " + kind.encode() + b"\ndata: " + dumps(data) + b"\n\n"

    def _delta(self, delta: chat_pb2.ChatDelta) -> bytes:
        frames: list[bytes] = []
        if delta.reasoning:
            frames += [self._switch("reasoning", 0), self._grow(delta.reasoning)]
        if self._call.logprobs and delta.logprobs:
            self._logprobs += logprob_list(delta.logprobs)
        if delta.content:
            frames += [self._switch("message", 0), self._grow(delta.content)]
        for call in delta.tool_calls:
            frames.append(self._switch("function_call", call.index, call))
            if call.arguments:
                frames.append(self._grow(call.arguments))
        return b"".join(frames)

    def _switch(self, kind: str, number: int, call: chat_pb2.ToolCallDelta | None = None) -> bytes:
        """Closes the open item and opens another, unless it is the same."""
        if self._open is not None and (self._open.kind, self._open.number) == (kind, number):
            return b""
        closing = self._close("completed")
        self._open = _Item(kind, number, len(self._output))
        if call is not None:
            self._open.call = chat_pb2.ToolCall(id=call.id, name=call.name)
        added = self._event(
            "response.output_item.added", output_index=self._open.index, item=self._object("in_progress", started=False)
        )
        if kind != "function_call":
            added += self._event("response.content_part.added", **self._place(), content_index=0, part=self._part())
        return closing + added

    def _object(self, status: str, *, started: bool = True) -> dict[str, Any]:
        item = self._current()
        if item.kind == "reasoning":
            return self._shapes.reasoning(item.index, item.text, status)
        if item.kind == "function_call":
            item.call.arguments = item.text
            return self._shapes.function_call(item.index, item.call, status)
        return self._shapes.message(item.index, [self._part()] if started else [], status)

    def _part(self) -> dict[str, Any]:
        item = self._current()
        if item.kind == "reasoning":
            return {"type": "reasoning_text", "text": item.text}
        return text_part(item.text, item.logprobs)

    def _current(self) -> _Item:
        if self._open is None:
            raise AssertionError("an item is open whenever one is written")
        return self._open

    def _place(self) -> dict[str, Any]:
        item = self._current()
        return {"item_id": self._shapes.item_id(_PREFIX[item.kind], item.index), "output_index": item.index}

    def _grow(self, text: str) -> bytes:
        item = self._current()
        item.text += text
        if item.kind == "function_call":
            return self._event("response.function_call_arguments.delta", **self._place(), delta=text)
        if item.kind == "reasoning":
            return self._event("response.reasoning_text.delta", **self._place(), content_index=0, delta=text)
        logprobs, self._logprobs = self._logprobs, []
        item.logprobs += logprobs
        return self._event(
            "response.output_text.delta", **self._place(), content_index=0, delta=text, logprobs=logprobs
        )

    def _close(self, status: str) -> bytes:
        item = self._open
        if item is None:
            return b""
        place = self._place()
        if item.kind == "function_call":
            done = self._event(
                "response.function_call_arguments.done", **place, name=item.call.name, arguments=item.text
            )
        else:
            spot = {**place, "content_index": 0}
            if item.kind == "reasoning":
                done = self._event("response.reasoning_text.done", **spot, text=item.text)
            else:
                done = self._event("response.output_text.done", **spot, text=item.text, logprobs=item.logprobs)
            done += self._event("response.content_part.done", **spot, part=self._part())
        ended = self._object(status)
        done += self._event("response.output_item.done", output_index=item.index, item=ended)
        self._output.append(ended)
        self._open = None
        return done

    def _end(self, end: output_pb2.StreamEnd) -> bytes:
        self.complete = True
        status, cut = self._ending
        frames = b""
        if not self._output and self._open is None:
            frames = self._switch("message", 0)  # an empty answer is a message of no text
        frames += self._close(status)
        response = self._shapes.response(status, self._output, end, cut)
        return frames + self._event(f"response.{status}", response=response)


_PREFIX = {"reasoning": "rs", "message": "msg", "function_call": "fc"}


class _Item:
    """The output item that is being written."""

    def __init__(self, kind: str, number: int, index: int) -> None:
        self.kind = kind
        self.number = number
        self.index = index
        self.text = ""
        self.logprobs: list[dict[str, Any]] = []
        self.call = chat_pb2.ToolCall()
