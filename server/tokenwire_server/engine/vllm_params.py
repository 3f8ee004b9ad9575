"""Pure conversion at the vLLM edge: proto -> SamplingParams, RequestOutput -> events of the contract."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import xgrammar
from vllm import SamplingParams
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

from tokenwire.v1 import chat_pb2, generation_pb2, output_pb2, sampling_pb2
from tokenwire_server.backend import CallContext
from tokenwire_server.errors import StatusError

__all__ = [
    "EngineRequestError",
    "EventWriter",
    "byte_alphabet",
    "greedy_copies",
    "sampling_params",
    "structured_outputs",
    "token_bytes",
]

Event = TypeVar("Event", chat_pb2.StreamChatResponse, generation_pb2.StreamGenerateResponse)

_KNOBS = (
    "min_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "include_stop_str_in_output",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
)
"""Fields of SamplingParams that are vLLM's own by name and meaning."""

_LOWEST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON and OpenAI's schema do not have."""

_FINISH: Mapping[str, output_pb2.FinishReason.ValueType] = {
    "stop": output_pb2.FINISH_REASON_STOP,
    "length": output_pb2.FINISH_REASON_LENGTH,
    "abort": output_pb2.FINISH_REASON_ABORTED,
    "repetition": output_pb2.FINISH_REASON_REPETITION,
}


def greedy_copies(sampling: sampling_pb2.SamplingParams, defaults: Mapping[str, Any]) -> int:
    """How often each output is sent: greedy decoding gives n equal outputs, so it runs once (vLLM refuses n > 1)."""
    temperature = sampling.temperature if sampling.HasField("temperature") else defaults.get("temperature", 1.0)
    return sampling.n if sampling.n > 1 and temperature == 0 else 1


def sampling_params(
    sampling: sampling_pb2.SamplingParams,
    output: sampling_pb2.OutputOptions,
    *,
    defaults: Mapping[str, Any],
    max_tokens: int,
    stream: bool,
    structured: StructuredOutputsParams | None = None,
    overrides: Mapping[str, Any] = MappingProxyType({}),
) -> SamplingParams:
    """Builds vLLM's SamplingParams.

    Args:
        sampling: The request's knobs, validated.
        output: What comes back.
        defaults: The model's generation config, where it differs from vLLM's defaults.
        max_tokens: Tokens to generate at most, at least 1; what the context leaves where the request sets none.
        stream: False asks for each output whole.
        structured: What the outputs must conform to.
        overrides: SamplingParams that hold whatever the request says, such as a parser's need of special tokens.
    """
    knobs: dict[str, Any] = dict(defaults)
    knobs.update((name, getattr(sampling, name)) for name in _KNOBS if sampling.HasField(name))  # type: ignore[arg-type]  # a name of the list above
    knobs["max_tokens"] = max_tokens
    n = max(1, sampling.n)
    return SamplingParams(
        n=n // greedy_copies(sampling, defaults),
        stop=list(sampling.stop) or None,
        stop_token_ids=list(sampling.stop_token_ids) or None,
        bad_words=list(sampling.bad_words) or None,
        allowed_token_ids=list(sampling.allowed_token_ids) or None,
        logit_bias=dict(sampling.logit_bias) or None,
        logprobs=output.logprobs if output.HasField("logprobs") else None,
        prompt_logprobs=output.prompt_logprobs if output.HasField("prompt_logprobs") else None,
        detokenize=not output.HasField("return_text") or output.return_text,
        output_kind=RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY,
        stream_interval=output.stream_interval if stream and output.HasField("stream_interval") else None,
        structured_outputs=structured,
        skip_clone=True,
        **{**knobs, **overrides},
    )


def structured_outputs(wanted: sampling_pb2.StructuredOutput) -> StructuredOutputsParams | None:
    """VLLM's form of StructuredOutput; None where nothing is asked.

    Raises:
        StatusError: INVALID_FIELD for a grammar in EBNF that is none.
    """
    form = wanted.WhichOneof("form")
    if form is None:
        return None
    if form == "choice":
        return StructuredOutputsParams(choice=list(wanted.choice.choices))
    if form == "grammar" and "::=" in wanted.grammar:
        # vLLM passes what xgrammar refuses on to a back end that takes a rule without a body for an empty output.
        try:
            xgrammar.Grammar.from_ebnf(wanted.grammar)
        except RuntimeError:
            raise StatusError.field("structured_output.grammar", "cannot be compiled to a grammar") from None
    name = "json" if form == "json_schema" else form
    return StructuredOutputsParams(**{name: getattr(wanted, form)})


def token_bytes(tokenizer: Any) -> Callable[[int, str], bytes]:
    """Returns a function from a token's id and text to its exact bytes.

    From the vocabulary and not from the text wherever the vocabulary says it: a part of a code point has bytes though
    its text is empty or U+FFFD. A byte-level vocabulary (GPT-2's, Llama 3's, Qwen's) writes each byte as one printable
    character; one with byte fallback (SentencePiece) writes lone bytes as `<0x0A>`.
    """
    decoder = repr(getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None))
    byte_of = byte_alphabet() if "ByteLevel" in decoder else {}
    added = set(getattr(tokenizer, "added_tokens_decoder", ()))
    known: dict[int, bytes | None] = {}

    def look_up(token_id: int) -> bytes | None:
        entry = tokenizer.convert_ids_to_tokens([token_id])[0] or ""
        if token_id in added or not entry:
            return None
        if all(c in byte_of for c in entry):
            return bytes(byte_of[c] for c in entry)
        if len(entry) == 6 and entry.startswith("<0x") and entry.endswith(">"):
            return bytes([int(entry[3:5], 16)])
        return None

    def convert(token_id: int, text: str) -> bytes:
        if token_id not in known:
            known[token_id] = look_up(token_id)
        exact = known[token_id]
        return text.encode("utf-8", "replace") if exact is None else exact

    return convert


def byte_alphabet() -> dict[str, int]:
    """The characters that stand for bytes in a byte-level vocabulary: printable Latin-1 itself, others from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


class EngineRequestError(Exception):
    """The engine gave one request up, and goes on with the others."""


class EventWriter(Generic[Event]):
    """Turns the RequestOutputs of one request into the events of one stream: start, deltas, finishes, end."""

    def __init__(
        self,
        kind: type[Event],
        *,
        model: str,
        call: CallContext,
        output: sampling_pb2.OutputOptions,
        copies: int,
        to_bytes: Callable[[int, str], bytes],
        echo: str = "",
    ) -> None:
        self._new: Callable[[], Event] = kind
        self._model = model
        self._call = call
        self._output = output
        self._copies = copies
        self._bytes = to_bytes
        self._echo = echo
        self._detailed = output.return_token_ids or output.HasField("logprobs")
        self._counts: dict[int, int] = {}
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._queue_s = 0.0
        self._first_token_at = 0.0

    def write(self, out: RequestOutput) -> Iterator[Event]:
        """Events of one RequestOutput.

        Raises:
            EngineRequestError: The engine has given the request up.
        """
        if any(part.finish_reason == "error" for part in out.outputs):
            raise EngineRequestError
        if not self._first_token_at:
            yield self._start(out)
            if self._echo:
                yield from self._copied([self._echoed(part.index) for part in out.outputs])
        for part in out.outputs:
            self._counts[part.index] = self._counts.get(part.index, 0) + len(part.token_ids)
            delta = self._delta(part)
            events = [] if delta is None else [delta]
            if part.finish_reason is not None:
                events.append(self._finish(part))
            yield from self._copied(events)

    def _copied(self, events: list[Event]) -> Iterator[Event]:
        """The events, and with greedy decoding of n outputs those of the others, which are equal."""
        yield from events
        for copy in range(1, self._copies):
            for event in events:
                twin = self._new()
                twin.CopyFrom(event)
                (twin.delta if twin.HasField("delta") else twin.finish).index += copy
                yield twin

    def end(self) -> Event:
        """The last event."""
        now = time.monotonic()
        event = self._new()
        usage = event.end.usage
        usage.prompt_token_count = self._prompt_tokens
        usage.cached_token_count = self._cached_tokens
        usage.output_token_count = sum(self._counts.values()) * self._copies
        usage.reasoning_token_count = self.reasoning_token_count() * self._copies
        usage.total_token_count = usage.prompt_token_count + usage.output_token_count
        timing = event.end.timing
        timing.queue_duration.FromNanoseconds(int(self._queue_s * 1e9))
        timing.first_token_duration.FromNanoseconds(int((self._first_token_at - self._call.received_at) * 1e9))
        timing.total_duration.FromNanoseconds(int((now - self._call.received_at) * 1e9))
        return event

    def reasoning_token_count(self) -> int:
        """Reasoning tokens of all outputs, where they are told apart."""
        return 0

    def _start(self, out: RequestOutput) -> Event:
        self._first_token_at = time.monotonic()
        self._prompt_tokens = len(out.prompt_token_ids or ())
        self._cached_tokens = out.num_cached_tokens or 0
        if out.metrics is not None and out.metrics.scheduled_ts:
            # Both are the engine core's own monotonic clock.
            self._queue_s = max(0.0, out.metrics.scheduled_ts - out.metrics.queued_ts)
        event = self._new()
        start = event.start
        start.request_id = self._call.request_id
        start.model = self._model
        start.create_time.FromNanoseconds(time.time_ns() - int((self._first_token_at - self._call.received_at) * 1e9))
        start.prompt_token_count = self._prompt_tokens
        start.cached_token_count = self._cached_tokens
        if self._output.return_token_ids:
            start.prompt.token_ids.extend(out.prompt_token_ids or ())
        if out.prompt_logprobs is not None and self._output.HasField("prompt_logprobs"):
            for token_id, entry in zip(out.prompt_token_ids or (), out.prompt_logprobs, strict=False):
                self._logprob(start.prompt.logprobs.add(), token_id, entry, self._output.prompt_logprobs)
        return event

    def _delta(self, part: CompletionOutput) -> Event | None:
        """What is new of one output; None where there is nothing to tell."""
        if not (part.text or self._detailed):
            return None
        event = self._new()
        delta = event.delta
        delta.index = part.index
        if isinstance(delta, chat_pb2.ChatDelta):
            delta.content = part.text
        else:
            delta.text = part.text
        if self._detailed:
            self._details(part, delta)
        return event

    def _details(self, part: CompletionOutput, delta: chat_pb2.ChatDelta | generation_pb2.GenerateDelta) -> None:
        """Token ids and logprobs, where they were asked for."""
        if self._output.return_token_ids:
            delta.token_ids.extend(part.token_ids)
        if part.logprobs is not None and self._output.HasField("logprobs"):
            for token_id, entry in zip(part.token_ids, part.logprobs, strict=False):
                self._logprob(delta.logprobs.add(), token_id, entry, self._output.logprobs)

    def _echoed(self, index: int) -> Event:
        event = self._new()
        delta = event.delta
        delta.index = index
        if isinstance(delta, generation_pb2.GenerateDelta):
            delta.text = self._echo
        return event

    def _finish(self, part: CompletionOutput) -> Event:
        event = self._new()
        finish = event.finish
        finish.index = part.index
        finish.finish_reason = self._reason(part)
        finish.output_token_count = self._counts[part.index]
        if finish.finish_reason == output_pb2.FINISH_REASON_STOP:
            if isinstance(part.stop_reason, str):
                finish.stop_match.stop = part.stop_reason
            elif part.stop_reason is not None:
                finish.stop_match.stop_token_id = part.stop_reason
            else:
                finish.stop_match.eos = True
        return event

    def _reason(self, part: CompletionOutput) -> output_pb2.FinishReason.ValueType:
        return _FINISH.get(part.finish_reason or "", output_pb2.FINISH_REASON_ABORTED)

    def _logprob(self, target: output_pb2.TokenLogprob, token_id: int, entry: Any, top: int) -> None:
        target.token_id = token_id
        if not entry:  # the first token of a prompt has none
            return
        chosen = entry.get(token_id)
        if chosen is not None:
            self._fill(target, token_id, chosen)
        ranked = sorted(entry.items(), key=lambda item: item[1].rank or 0)
        for other_id, other in ranked:
            if (other.rank or 0) <= top:
                self._fill(target.top.add(), other_id, other)

    def _fill(self, target: output_pb2.TokenLogprob | output_pb2.TopLogprob, token_id: int, entry: Any) -> None:
        text = entry.decoded_token or ""
        target.token_id = token_id
        target.token = text
        target.token_bytes = self._bytes(token_id, text)
        target.logprob = max(_LOWEST_LOGPROB, entry.logprob)
        target.rank = entry.rank or 0
