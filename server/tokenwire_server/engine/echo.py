"""EchoEngine: answers with the prompt, at a set pace, without vLLM: for installs without it, and tests around it.

Deterministic: word i of an answer is word i of the prompt, round and round, up to `max_tokens`; a word is a token and
its id is a hash of it. A prompt that holds `[[fault:NAME:K]]` fails after K tokens: NAME is a reason of the error
table, or `hang`.
"""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tokenwire.admin.v1 import admin_pb2
from tokenwire.v1 import (
    chat_pb2,
    embedding_pb2,
    generation_pb2,
    model_pb2,
    output_pb2,
    sampling_pb2,
    tokenization_pb2,
)
from tokenwire_server.backend import CallContext
from tokenwire_server.engine.protocol import EngineLimits
from tokenwire_server.errors import REASONS, StatusError

__all__ = ["EchoEngine"]

_FAULT = re.compile(r"\[\[fault:([A-Za-z_]+):(\d+)\]\]")

_VOCABULARY = 65536

_Event = TypeVar("_Event", chat_pb2.StreamChatResponse, generation_pb2.StreamGenerateResponse)


@dataclass
class _Run:
    """One request that runs."""

    cancelled: asyncio.Event
    running: bool = False


class EchoEngine:
    """Echoes prompts.

    Args:
        model_id: What requests name it by.
        ttft_ms: Time to the first token, milliseconds.
        step_ms: Time between tokens, milliseconds; 0 is as fast as it goes.
        start_s: Time to start, seconds.
        max_model_len: Context in words.
    """

    def __init__(
        self,
        model_id: str,
        *,
        ttft_ms: float = 0.0,
        step_ms: float = 0.0,
        start_s: float = 0.0,
        max_model_len: int = 4096,
    ) -> None:
        self._model = model_pb2.Model(
            id=model_id,
            task=model_pb2.MODEL_TASK_GENERATE,
            max_model_len=max_model_len,
            vocab_size=_VOCABULARY,
            chat=True,
        )
        self._ttft_s = ttft_ms / 1000
        self._step_s = step_ms / 1000
        self._start_s = start_s
        self._runs: dict[str, _Run] = {}

    @property
    def model(self) -> model_pb2.Model:
        """Facts of the model."""
        return self._model

    @property
    def version(self) -> str:
        """Name of the engine."""
        return "echo"

    @property
    def limits(self) -> EngineLimits:
        """What it allows."""
        unsupported = {
            "tools",
            "structured_output",
            "reasoning",
            "adapter",
            "output.logprobs",
            "output.prompt_logprobs",
        }
        return EngineLimits(self._model.max_model_len, _VOCABULARY, 0, frozenset(unsupported))

    @property
    def errored(self) -> bool:
        """It does not die."""
        return False

    async def start(self) -> None:
        """Waits `start_s`."""
        await asyncio.sleep(self._start_s)
        self._model.create_time.GetCurrentTime()

    async def shutdown(self) -> None:
        """Nothing to end."""

    async def generate(
        self, request: generation_pb2.GenerateRequest, call: CallContext, *, stream: bool = True
    ) -> AsyncGenerator[generation_pb2.StreamGenerateResponse, None]:
        """See `Engine.generate`."""
        text = request.text or " ".join(f"<{i}>" for i in request.token_ids.ids)
        async for event in self._answer(generation_pb2.StreamGenerateResponse, text, request, call):
            yield event

    async def chat(
        self, request: chat_pb2.ChatRequest, call: CallContext, *, stream: bool = True
    ) -> AsyncGenerator[chat_pb2.StreamChatResponse, None]:
        """See `Engine.chat`."""
        text = "".join(part.text for part in request.messages[-1].content)
        async for event in self._answer(chat_pb2.StreamChatResponse, text, request, call):
            yield event

    async def _answer(
        self,
        kind: type[_Event],
        text: str,
        request: chat_pb2.ChatRequest | generation_pb2.GenerateRequest,
        call: CallContext,
    ) -> AsyncGenerator[_Event, None]:
        words = text.split() or ["..."]
        asked = request.sampling.max_tokens if request.sampling.HasField("max_tokens") else 1
        if len(words) + asked > self._model.max_model_len:
            limit = self._model.max_model_len
            text = (
                f"This model's maximum context length is {limit} tokens. However, you requested {len(words)} in the "
                f"prompt and {asked} for the output."
            )
            field = "messages" if isinstance(request, chat_pb2.ChatRequest) else "text"
            raise StatusError.too_long(field, text, {"maxModelLen": str(limit)})
        sampling, output = request.sampling, request.output
        fault = _FAULT.search(text)
        count = min(
            sampling.max_tokens if sampling.HasField("max_tokens") else len(words),
            self._model.max_model_len - len(words),
        )
        run = self._runs.setdefault(call.request_id, _Run(asyncio.Event()))
        outputs = range(sampling.n if sampling.HasField("n") else 1)
        first_at = 0.0
        try:
            await asyncio.sleep(self._ttft_s)
            run.running = True
            for step in range(count):
                if step:
                    await asyncio.sleep(self._step_s)
                if fault and step == int(fault[2]):
                    await self._fail(fault[1])
                if run.cancelled.is_set():
                    break
                if not step:
                    first_at = time.monotonic()
                    yield self._start_event(kind, call, words, output)
                for index in outputs:
                    yield _delta(kind, index, words[step % len(words)], step, output)
            ended = output_pb2.FINISH_REASON_LENGTH if count < len(words) else output_pb2.FINISH_REASON_STOP
            for index in outputs:
                reason = output_pb2.FINISH_REASON_ABORTED if run.cancelled.is_set() else ended
                event = kind()
                event.finish.index = index
                event.finish.finish_reason = reason
                event.finish.output_token_count = count
                if reason == output_pb2.FINISH_REASON_STOP:
                    event.finish.stop_match.eos = True
                yield event
            yield _end(kind, len(words), count * len(outputs), first_at, call)
        finally:
            self._runs.pop(call.request_id, None)

    def _start_event(
        self, kind: type[_Event], call: CallContext, words: Sequence[str], output: sampling_pb2.OutputOptions
    ) -> _Event:
        event = kind()
        event.start.request_id = call.request_id
        event.start.model = self._model.id
        event.start.create_time.GetCurrentTime()
        event.start.prompt_token_count = len(words)
        if output.return_token_ids:
            event.start.prompt.token_ids.extend(map(_token_id, words))
        return event

    async def _fail(self, name: str) -> None:
        if name == "hang":
            await asyncio.Event().wait()
        if name in REASONS:
            raise StatusError.of(name, f"Scripted fault {name}.")
        raise RuntimeError("scripted fault that is no status")

    async def embed(self, request: embedding_pb2.EmbedRequest, call: CallContext) -> embedding_pb2.EmbedResponse:
        """It does not embed."""
        raise StatusError.of("WRONG_TASK", f"The model `{self._model.id}` generates; it does not embed.")

    async def tokenize(self, request: tokenization_pb2.TokenizeRequest) -> tokenization_pb2.TokenizeResponse:
        """A word is a token."""
        words = request.text.split()
        tokens = words if request.return_tokens else []
        return tokenization_pb2.TokenizeResponse(
            token_ids=map(_token_id, words), tokens=tokens, max_model_len=self._model.max_model_len
        )

    async def detokenize(self, request: tokenization_pb2.DetokenizeRequest) -> tokenization_pb2.DetokenizeResponse:
        """Ids are hashes, which have no way back: each is written as its number."""
        return tokenization_pb2.DetokenizeResponse(text=" ".join(f"<{i}>" for i in request.token_ids))

    async def render_chat(self, request: tokenization_pb2.RenderChatRequest) -> tokenization_pb2.RenderChatResponse:
        """The last message is the prompt."""
        text = "".join(part.text for part in request.messages[-1].content)
        return tokenization_pb2.RenderChatResponse(
            text=text, token_ids=map(_token_id, text.split()), max_model_len=self._model.max_model_len
        )

    async def tokenizer_info(self) -> tokenization_pb2.GetTokenizerInfoResponse:
        """Facts of splitting at white space."""
        return tokenization_pb2.GetTokenizerInfoResponse(
            tokenizer_class="str.split", vocab_size=_VOCABULARY, max_model_len=self._model.max_model_len
        )

    def adapter_names(self) -> list[str]:
        """See `Engine.adapter_names`."""
        return []

    def adapter_named(self, _name: str) -> str | None:
        """See `Engine.adapter_named`."""
        return None

    async def load_adapter(self, _name: str) -> None:
        """See `Engine.load_adapter`."""
        raise StatusError.unsupported("adapter", "is not served by echo")

    async def unload_adapter(self, _name: str) -> bool:
        """See `Engine.unload_adapter`."""
        raise StatusError.unsupported("adapter", "is not served by echo")

    async def adapters(self, _replica: str) -> list[admin_pb2.Adapter]:
        """See `Engine.adapters`."""
        return []

    def load(self) -> admin_pb2.ReplicaLoad:
        """Requests that are before and after their first token."""
        running = sum(run.running for run in self._runs.values())
        waiting = len(self._runs) - running
        return admin_pb2.ReplicaLoad(model=self._model.id, running_count=running, waiting_count=waiting)

    async def reset_prefix_cache(self) -> None:
        """There is none."""

    async def cancel(self, request_ids: Sequence[str]) -> int:
        """Ends requests at their next token."""
        found = [self._runs[one] for one in request_ids if one in self._runs]
        for run in found:
            run.cancelled.set()
        return len(found)


def _token_id(word: str) -> int:
    return zlib.crc32(word.encode()) % _VOCABULARY


def _delta(kind: type[_Event], index: int, word: str, step: int, output: sampling_pb2.OutputOptions) -> _Event:
    event = kind()
    delta = event.delta
    delta.index = index
    text = word if step == 0 else f" {word}"
    if isinstance(delta, chat_pb2.ChatDelta):
        delta.content = text
    else:
        delta.text = text
    if output.return_token_ids:
        delta.token_ids.append(_token_id(word))
    return event


def _end(kind: type[_Event], prompt: int, generated: int, first_at: float, call: CallContext) -> _Event:
    event = kind()
    usage = event.end.usage
    usage.prompt_token_count, usage.output_token_count, usage.total_token_count = prompt, generated, prompt + generated
    event.end.timing.first_token_duration.FromNanoseconds(int(max(0.0, first_at - call.received_at) * 1e9))
    event.end.timing.total_duration.FromNanoseconds(int((time.monotonic() - call.received_at) * 1e9))
    return event
