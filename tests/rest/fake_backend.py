"""A Backend with a script in place of an engine: what it says, when it stops, what it raises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message
from tests.rest.fake_folding import folded

from tokenwire.v1 import chat_pb2, embedding_pb2, generation_pb2, model_pb2, output_pb2, tokenization_pb2
from tokenwire_server.backend import CallContext
from tokenwire_server.engine.protocol import EngineLimits
from tokenwire_server.errors import StatusError
from tokenwire_server.validation import Validator

CREATED = 1_700_000_000
MODELS = {
    "org/tiny": model_pb2.Model(id="org/tiny", task=model_pb2.MODEL_TASK_GENERATE, max_model_len=4096, chat=True),
    "org/tiny:poet": model_pb2.Model(id="org/tiny:poet", task=model_pb2.MODEL_TASK_GENERATE, parent="org/tiny"),
    "mini": model_pb2.Model(id="mini", task=model_pb2.MODEL_TASK_EMBED, embedding_dimensions=3),
}
LIMITS = EngineLimits(max_model_len=4096, vocab_size=50_000, max_logprobs=20, unsupported=frozenset())
for _model in MODELS.values():
    _model.create_time.seconds = CREATED


@dataclass
class Script:
    """What the next calls do."""

    tokens: tuple[str, ...] = ("Hello", " world", "!")
    """Text of the tokens of each output."""
    reasoning: str = ""
    tool_calls: tuple[tuple[str, str], ...] = ()
    """Name and arguments of each call."""
    finish: Any = output_pb2.FINISH_REASON_STOP
    stop_match: output_pb2.StopMatch | None = None
    raises: Exception | None = None
    raise_after: int = 0
    """Tokens before it is raised; 0 is before the first event."""
    gate: asyncio.Event | None = None
    """Held before the first event until it is set."""
    gate_after: int = 0
    """Tokens before the gate; 0 is before the first event."""
    no_end: bool = False
    """The stream stops without its end."""
    last_choice_first: bool = False
    """The deltas of the last choice come first."""
    logprob: float = -0.5
    numbered: bool = False
    """Each output begins with its number."""


@dataclass
class FakeBackend:
    """Answers chat, generation, embedding and models; records what it was asked."""

    keys: frozenset[str] = frozenset()
    script: Script = field(default_factory=Script)
    requests: list[Any] = field(default_factory=list)
    calls: list[CallContext] = field(default_factory=list)
    running: int = 0
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while a call is in the backend."""
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a call was cancelled or its stream closed early."""
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the last running call has ended."""
    validator: Validator = field(default_factory=Validator)

    def reset(self) -> None:
        """Forgets everything but the validator."""
        self.keys = frozenset()
        self.script = Script()
        self.requests.clear()
        self.calls.clear()
        self.entered.clear()
        self.cancelled.clear()

    def authorize(self, call: CallContext) -> None:
        if self.keys and call.api_key not in self.keys:
            raise StatusError.of("UNAUTHENTICATED", "Incorrect API key provided.")
        call.identity = "test"

    async def unary(self, method: str, request: Any, call: CallContext) -> Message:
        if method.endswith("/ListModels"):
            return _page(request)
        if method.endswith("/GetModel"):
            return model_pb2.GetModelResponse(model=_model_named(request.model))
        if method.endswith("/Embed"):
            return await self._embed(request, call)
        if "TokenizationService/" in method:
            self.requests.append(request)
            self.validator.check(request)
            return _tokenization(request)
        response: Message = folded(request, [event async for event in self.stream(method, request, call)])
        return response

    async def stream(self, method: str, request: Any, call: CallContext) -> AsyncIterator[Any]:
        self.requests.append(request)
        self.calls.append(call)
        call.request_id = request.request_id or call.request_id  # as the service does
        self._admit(request)
        self.running += 1
        self.idle.clear()
        self.entered.set()
        done = False
        try:
            async for event in self._events(request):
                yield event
            done = True
        except StatusError:
            done = True
            raise
        finally:
            self.running -= 1
            if not done:
                self.cancelled.set()
            if not self.running:
                self.idle.set()

    def _admit(self, request: Any) -> None:
        self.validator.check(request)
        _model_named(request.model)
        self.validator.check_model(request, LIMITS)
        _check_context(request)
        if self.script.raises is not None and not self.script.raise_after:
            raise self.script.raises

    async def _embed(self, request: embedding_pb2.EmbedRequest, call: CallContext) -> Message:
        self.requests.append(request)
        self.calls.append(call)
        self._admit(request)
        response = embedding_pb2.EmbedResponse(model=request.model)
        for index in range(len(request.inputs)):
            response.embeddings.add(index=index, values=[0.25, -0.5, float(index)], prompt_token_count=2)
        response.usage.prompt_token_count = 2 * len(request.inputs)
        return response

    async def _events(self, request: Any) -> AsyncIterator[Any]:
        script = self.script
        chat = isinstance(request, chat_pb2.ChatRequest)
        event: Any = chat_pb2.StreamChatResponse if chat else generation_pb2.StreamGenerateResponse
        n = request.sampling.n or 1
        if script.gate is not None and not script.gate_after:
            await script.gate.wait()
        yield event(start=_start(request))
        order = range(n)[::-1] if script.last_choice_first else range(n)
        tokens = _tokens(request, script)
        if script.reasoning:
            for index in order:
                yield event(delta=chat_pb2.ChatDelta(index=index, reasoning=script.reasoning))
        for count, token in enumerate(tokens):
            await asyncio.sleep(0)  # as an engine, a step takes a turn of the loop
            if script.raises is not None and count == script.raise_after:
                raise script.raises
            if script.gate is not None and script.gate_after and count == script.gate_after:
                await script.gate.wait()
            for index in order:
                yield event(delta=_delta(request, index, count, token, script))
        for number, (name, arguments) in enumerate(script.tool_calls):
            for index in order:
                for delta in _tool_deltas(number, name, arguments):
                    yield event(delta=chat_pb2.ChatDelta(index=index, tool_calls=[delta]))
        reason, match = _ending(request, script, tokens)
        for index in order:
            yield event(finish=output_pb2.OutputFinish(index=index, finish_reason=reason, stop_match=match))
        if not script.no_end:
            usage = output_pb2.Usage(prompt_token_count=5, output_token_count=n * len(tokens), cached_token_count=2)
            yield event(end=output_pb2.StreamEnd(usage=usage))


def _tokens(request: Any, script: Script) -> tuple[str, ...]:
    if request.structured_output.choice.choices:
        return _until_stop((request.structured_output.choice.choices[0],), request)
    limit = request.sampling.max_tokens or len(script.tokens)
    return _until_stop(script.tokens[:limit], request)


def _until_stop(tokens: tuple[str, ...], request: Any) -> tuple[str, ...]:
    text = "".join(tokens)
    ends = [text.index(stop) for stop in request.sampling.stop if stop in text]
    return (text[: min(ends)],) if ends else tokens


def _ending(request: Any, script: Script, tokens: tuple[str, ...]) -> tuple[Any, output_pb2.StopMatch | None]:
    text = request.structured_output.choice.choices[0] if request.structured_output.choice.choices else ""
    whole = text or "".join(script.tokens)
    stop = next((one for one in request.sampling.stop if one in whole), None)
    if stop is not None:
        return output_pb2.FINISH_REASON_STOP, output_pb2.StopMatch(stop=stop)
    cut = not text and len(tokens) < len(script.tokens)
    return (output_pb2.FINISH_REASON_LENGTH if cut else script.finish), script.stop_match


def _check_context(request: Any) -> None:
    """A word is a token here."""
    texts = [request.text] if isinstance(request, generation_pb2.GenerateRequest) else []
    for message in getattr(request, "messages", ()):
        texts.extend(part.text for part in message.content)
    words = sum(len(text.split()) for text in texts)
    limit = LIMITS.max_model_len
    asked = request.sampling.max_tokens if hasattr(request, "sampling") else 0
    if words >= limit or words + asked > limit:
        text = f"This model's maximum context length is {limit} tokens. However, you asked for {words + asked}."
        raise StatusError.of("CONTEXT_LENGTH_EXCEEDED", text, metadata={"maxModelLen": str(limit)})


def _start(request: Any) -> output_pb2.StreamStart:
    start = output_pb2.StreamStart(model=request.model, prompt_token_count=5, cached_token_count=2)
    start.create_time.seconds = CREATED
    if request.output.return_token_ids:
        start.prompt.token_ids.extend(range(5))
    if request.output.HasField("prompt_logprobs"):
        for count, text in enumerate(("Say", " it")):
            one = start.prompt.logprobs.add(token_id=count, token=text, token_bytes=text.encode())
            if count:
                one.logprob, other = -1.0, " no"
                one.top.add(token_id=9, token=other, token_bytes=other.encode(), logprob=-0.25, rank=1)
    return start


def _delta(request: Any, index: int, count: int, token: str, script: Script) -> Any:
    echo = "".join(("Say", " it")) if request.output.echo and count == 0 else ""
    if script.numbered and count == 0:
        token = f"{index} {token}"
    if isinstance(request, chat_pb2.ChatRequest):
        delta: Any = chat_pb2.ChatDelta(index=index, content=token)
    else:
        delta = generation_pb2.GenerateDelta(index=index, text=echo + token)
    if request.output.return_token_ids:
        delta.token_ids.append(100 + count)
    if request.output.HasField("logprobs"):
        one = delta.logprobs.add(token_id=100 + count, token_bytes=token.encode(), logprob=script.logprob)
        one.token = token
        for rank in range(request.output.logprobs):
            one.top.add(token_id=rank, token=f"t{rank}", token_bytes=b"t%d" % rank, logprob=-1.0 - rank, rank=rank + 1)
    return delta


def _tool_deltas(number: int, name: str, arguments: str) -> list[chat_pb2.ToolCallDelta]:
    half = len(arguments) // 2
    return [
        chat_pb2.ToolCallDelta(index=number, id=f"call_{number}", name=name),
        chat_pb2.ToolCallDelta(index=number, arguments=arguments[:half]),
        chat_pb2.ToolCallDelta(index=number, arguments=arguments[half:]),
    ]


def _tokenization(request: Any) -> Message:
    """A word is a token, and its id is its length."""
    if isinstance(request, tokenization_pb2.DetokenizeRequest):
        return tokenization_pb2.DetokenizeResponse(text=" ".join("x" * one for one in request.token_ids))
    if isinstance(request, tokenization_pb2.GetTokenizerInfoRequest):
        info = tokenization_pb2.GetTokenizerInfoResponse(tokenizer_class="Words", vocab_size=99, max_model_len=4096)
        info.special_tokens["eos_token"] = "</s>"  # noqa: S105  no password
        info.chat_template = "{{ messages }}"
        return info
    if isinstance(request, tokenization_pb2.TokenizeRequest):
        words = request.text.split()
        answer = tokenization_pb2.TokenizeResponse(token_ids=map(len, words), max_model_len=4096)
        answer.tokens.extend(words if request.return_tokens else ())
        return answer
    text = " ".join(part.text for message in request.messages for part in message.content)
    return tokenization_pb2.RenderChatResponse(text=text, token_ids=map(len, text.split()), max_model_len=4096)


def _page(request: Any) -> model_pb2.ListModelsResponse:
    """One model a page, so that the shim has to turn pages."""
    names = sorted(MODELS)
    at = int(request.page_token or 0)
    following = str(at + 1) if at + 1 < len(names) else ""
    return model_pb2.ListModelsResponse(models=[MODELS[names[at]]], next_page_token=following)


def _model_named(name: str) -> model_pb2.Model:
    if name not in MODELS:
        raise StatusError.not_found("MODEL_NOT_FOUND", "model", name, MODELS)
    return MODELS[name]
