"""What the fake server says: the contract's messages from scripted texts. One token is one byte of UTF-8."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tokenwire.v1 import chat_pb2, embedding_pb2, generation_pb2, output_pb2, sampling_pb2

MAX_MODEL_LEN = 4096
_CREATED_S = 1_700_000_000


@dataclass(frozen=True)
class Reply:
    """A scripted answer; see `FakeServer.reply`."""

    texts: tuple[str, ...]
    reasoning: str = ""
    tool_calls: tuple[chat_pb2.ToolCall, ...] = ()
    finish_reason: output_pb2.FinishReason.ValueType = output_pb2.FINISH_REASON_STOP
    hold: bool = False
    end: bool = True

    def text(self, index: int) -> str:
        """Text of an output; the last one serves all further outputs."""
        return self.texts[min(index, len(self.texts) - 1)]


@dataclass(frozen=True)
class Asked:
    """What an answer needs to know of a request."""

    request_id: str
    model: str
    prompt: bytes
    sampling: sampling_pb2.SamplingParams
    output: sampling_pb2.OutputOptions

    @property
    def n(self) -> int:
        """Number of outputs."""
        return self.sampling.n if self.sampling.HasField("n") else 1

    def prompt_info(self) -> output_pb2.PromptInfo | None:
        """The prompt's token ids, where they were asked for."""
        return output_pb2.PromptInfo(token_ids=self.prompt) if self.output.return_token_ids else None

    def tokens(self, text: str) -> dict[str, Any]:
        """The fields that chat and generation, delta and whole, have alike."""
        data = text.encode()
        found: dict[str, Any] = {}
        if self.output.return_token_ids:
            found["token_ids"] = data
        if self.output.HasField("logprobs"):
            found["logprobs"] = [_logprob(byte) for byte in data]
        return found


def _logprob(byte: int) -> output_pb2.TokenLogprob:
    data = bytes([byte])
    token = data.decode("utf-8", "replace")
    return output_pb2.TokenLogprob(token_id=byte, token=token, token_bytes=data, logprob=-0.5, rank=1)


def message_text(message: chat_pb2.ChatMessage) -> str:
    """The text parts of a message, joined."""
    return "".join(part.text for part in message.content)


def prompt_of(request: Any) -> str:
    """The prompt as text: what the last message or the prompt says."""
    if isinstance(request, chat_pb2.ChatRequest):
        return message_text(request.messages[-1]) if request.messages else ""
    return input_bytes(request).decode("utf-8", "replace")


def input_bytes(message: Any) -> bytes:
    """Bytes of a GenerateRequest's prompt, or of an EmbedInput; a token id above 255 wraps around."""
    if message.HasField("token_ids"):
        return bytes(token % 256 for token in message.token_ids.ids)
    text: str = message.text
    return text.encode()


def chat_response(asked: Asked, reply: Reply) -> chat_pb2.ChatResponse:
    """The unary answer to a chat."""
    response = chat_pb2.ChatResponse(**_head(asked), usage=_usage(asked, reply), timing=_timing())
    for index in range(asked.n):
        text = reply.text(index)
        response.choices.add(
            index=index,
            content=text,
            reasoning=reply.reasoning,
            tool_calls=reply.tool_calls,
            **_ending(reply),
            **asked.tokens(reply.reasoning + text),
        )
    return response


def generate_response(asked: Asked, reply: Reply) -> generation_pb2.GenerateResponse:
    """The unary answer to a prompt."""
    response = generation_pb2.GenerateResponse(**_head(asked), usage=_usage(asked, reply), timing=_timing())
    for index in range(asked.n):
        text = reply.text(index)
        response.outputs.add(index=index, text=text, **_ending(reply), **asked.tokens(text))
    return response


def chat_events(asked: Asked, reply: Reply) -> Iterator[chat_pb2.StreamChatResponse]:
    """The events of StreamChat but for the end; the outputs take turns."""
    yield chat_pb2.StreamChatResponse(start=_start(asked))
    if reply.reasoning:
        for index in range(asked.n):
            yield chat_pb2.StreamChatResponse(
                delta=chat_pb2.ChatDelta(index=index, reasoning=reply.reasoning, **asked.tokens(reply.reasoning))
            )
    for index, piece in _turns(asked, reply):
        yield chat_pb2.StreamChatResponse(delta=chat_pb2.ChatDelta(index=index, content=piece, **asked.tokens(piece)))
    for index in range(asked.n):
        for part in _call_parts(reply.tool_calls):
            yield chat_pb2.StreamChatResponse(delta=chat_pb2.ChatDelta(index=index, tool_calls=[part]))


def generate_events(asked: Asked, reply: Reply) -> Iterator[generation_pb2.StreamGenerateResponse]:
    """The events of StreamGenerate but for the end; the outputs take turns."""
    yield generation_pb2.StreamGenerateResponse(start=_start(asked))
    for index, piece in _turns(asked, reply):
        yield generation_pb2.StreamGenerateResponse(
            delta=generation_pb2.GenerateDelta(index=index, text=piece, **asked.tokens(piece))
        )


def endings(asked: Asked, reply: Reply) -> Iterator[dict[str, Any]]:
    """The finish of each output and the end, as the event's only field."""
    for index in range(asked.n):
        count = _token_count(reply, index)
        yield {"finish": output_pb2.OutputFinish(index=index, output_token_count=count, **_ending(reply))}
    if reply.end:
        yield {"end": output_pb2.StreamEnd(usage=_usage(asked, reply), timing=_timing())}


def vector(data: bytes, dimensions: int) -> embedding_pb2.Embedding:
    """A vector that depends on the input alone, with values from -1 to 1."""
    stream = hashlib.shake_256(data).digest(dimensions)
    values = [byte / 127.5 - 1 for byte in stream]
    return embedding_pb2.Embedding(values=values, prompt_token_count=len(data))


def _pieces(text: str) -> list[str]:
    """A text in pieces of one word each."""
    return re.findall(r"\S+\s*|\s+", text)


def _turns(asked: Asked, reply: Reply) -> Iterator[tuple[int, str]]:
    waiting = {index: _pieces(reply.text(index)) for index in range(asked.n)}
    while any(waiting.values()):
        for index, pieces in waiting.items():
            if pieces:
                yield index, pieces.pop(0)


def _call_parts(calls: Sequence[chat_pb2.ToolCall]) -> Iterator[chat_pb2.ToolCallDelta]:
    for index, call in enumerate(calls):
        half = len(call.arguments) // 2
        yield chat_pb2.ToolCallDelta(index=index, id=call.id, name=call.name, arguments=call.arguments[:half])
        yield chat_pb2.ToolCallDelta(index=index, arguments=call.arguments[half:])


def _head(asked: Asked) -> dict[str, Any]:
    head: dict[str, Any] = {
        "request_id": asked.request_id,
        "model": asked.model,
        "create_time": {"seconds": _CREATED_S},
    }
    info = asked.prompt_info()
    if info is not None:
        head["prompt"] = info
    return head


def _start(asked: Asked) -> output_pb2.StreamStart:
    return output_pb2.StreamStart(**_head(asked), prompt_token_count=len(asked.prompt))


def _ending(reply: Reply) -> dict[str, Any]:
    ending: dict[str, Any] = {"finish_reason": reply.finish_reason}
    if reply.finish_reason == output_pb2.FINISH_REASON_STOP:
        ending["stop_match"] = output_pb2.StopMatch(eos=True)
    return ending


def _token_count(reply: Reply, index: int) -> int:
    return len((reply.reasoning + reply.text(index)).encode())


def _usage(asked: Asked, reply: Reply) -> output_pb2.Usage:
    generated = sum(_token_count(reply, index) for index in range(asked.n))
    return output_pb2.Usage(
        prompt_token_count=len(asked.prompt),
        output_token_count=generated,
        total_token_count=len(asked.prompt) + generated,
        reasoning_token_count=len(reply.reasoning.encode()) * asked.n,
    )


def _timing() -> output_pb2.Timing:
    timing = output_pb2.Timing()
    timing.queue_duration.FromMilliseconds(1)
    timing.first_token_duration.FromMilliseconds(10)
    timing.total_duration.FromMilliseconds(20)
    return timing
