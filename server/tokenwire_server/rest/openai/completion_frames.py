"""`StreamGenerateResponse` events of one or more prompts -> SSE frames of `text_completion`."""

from __future__ import annotations

from typing import Any

from tokenwire.v1 import generation_pb2, output_pb2
from tokenwire_server.rest.openai.completions import CompletionCall
from tokenwire_server.rest.openai.encoding import dumps
from tokenwire_server.rest.openai.legacy_logprobs import LegacyLogprobs
from tokenwire_server.rest.openai.replies import finish_name, reply_id, stop_reason
from tokenwire_server.rest.openai.usage import UsageTail

__all__ = ["CompletionFrames"]


class CompletionFrames:
    """Writes the frames of one stream.

    Args:
        call: The translated request.
        request_id: Names the reply where the body named none.
    """

    def __init__(self, call: CompletionCall, request_id: str) -> None:
        self._call = call
        self._id = reply_id("cmpl", call.request_id or request_id)
        self._head = b""
        self._usage = UsageTail(call.stream)
        self._extras = call.logprobs or call.token_ids or self._usage.continuous
        self._logprobs: dict[int, LegacyLogprobs] = {}
        self._prompts: dict[int, output_pb2.PromptInfo] = {}
        self._told: set[int] = set()
        self._open = len(call.requests)

    @property
    def complete(self) -> bool:
        """Whether every prompt's stream has come to its end."""
        return self._open == 0

    def feed(self, item: tuple[int, generation_pb2.StreamGenerateResponse]) -> bytes:
        """The frames of an event of the prompt with that number."""
        prompt, event = item
        kind = event.WhichOneof("event")
        if kind == "delta":
            return self._delta(prompt, event.delta)
        if kind == "start":
            self._start(prompt, event.start)
        elif kind == "finish":
            return self._finish(prompt, event.finish)
        elif kind == "end":
            self._open -= 1
            self._usage.add(event.end.usage)
            return self._usage.last(self._head) if self.complete else b""
        return b""

    def _start(self, prompt: int, start: output_pb2.StreamStart) -> None:
        self._usage.start(start)
        if start.HasField("prompt"):
            self._prompts[prompt] = start.prompt
        if self._head:
            return
        common: dict[str, Any] = {
            "id": self._id,
            "object": "text_completion",
            "created": start.create_time.seconds,
            "model": start.model or self._call.requests[0].model,
        }
        if self._call.service_tier:
            common["service_tier"] = self._call.service_tier
        self._head = b"data: " + dumps(common)[:-1] + b',"choices":['

    def _delta(self, prompt: int, delta: generation_pb2.GenerateDelta) -> bytes:
        index = prompt * self._call.n + delta.index
        text = delta.text
        if not self._extras:
            return self._frame(index, dumps(text), b"null") if text else b""
        self._usage.count(delta.token_ids)
        if not text and not delta.logprobs and not (self._call.token_ids and delta.token_ids):
            return b""
        logprobs = self._legacy(prompt, index, delta) if self._call.logprobs else b"null"
        return self._frame(index, dumps(text), logprobs, extra=self._ids(prompt, delta))

    def _legacy(self, prompt: int, index: int, delta: generation_pb2.GenerateDelta) -> bytes:
        writer = self._logprobs.get(index)
        tokens = list(delta.logprobs)
        if writer is None:
            writer = self._logprobs[index] = LegacyLogprobs(self._call.first_offset(prompt))
            if self._call.echo and prompt in self._prompts:
                tokens = [*self._prompts[prompt].logprobs, *tokens]
        return dumps(writer.take(tokens)) if tokens else b"null"

    def _ids(self, prompt: int, delta: generation_pb2.GenerateDelta) -> bytes:
        if not self._call.token_ids:
            return b""
        ids = b',"token_ids":' + dumps(list(delta.token_ids))
        if prompt in self._prompts and prompt not in self._told:
            # Once a prompt, with its first chunk, as vLLM does.
            self._told.add(prompt)
            ids += b',"prompt_token_ids":' + dumps(list(self._prompts[prompt].token_ids))
        return ids

    def _finish(self, prompt: int, finish: output_pb2.OutputFinish) -> bytes:
        stop = stop_reason(finish.stop_match)
        extra = b"" if stop is None else b',"stop_reason":' + dumps(stop)
        reason = dumps(finish_name(finish.finish_reason))
        return self._frame(prompt * self._call.n + finish.index, b'""', b"null", reason, extra)

    def _frame(self, index: int, text: bytes, logprobs: bytes, finish: bytes = b"null", extra: bytes = b"") -> bytes:
        choice = b'{"text":%b,"index":%d,"logprobs":%b,"finish_reason":%b%b}]' % (text, index, logprobs, finish, extra)
        return self._head + choice + self._usage.tail
