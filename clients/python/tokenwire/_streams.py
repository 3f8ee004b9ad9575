"""Whole responses out of a stream's events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import Message

from tokenwire.errors import IncompleteStreamError
from tokenwire.v1 import chat_pb2, generation_pb2, output_pb2

DeltaT = TypeVar("DeltaT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


@dataclass
class _Text:
    """A text that grows. A list, since `+=` on a field of a message keeps every copy until the message goes."""

    pieces: list[str] = field(default_factory=list)

    def add(self, piece: str) -> None:
        if piece:
            self.pieces.append(piece)

    def __str__(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""


@dataclass
class _Call:
    """A tool call that grows."""

    id: str = ""
    name: str = ""
    arguments: _Text = field(default_factory=_Text)


@dataclass
class _Output:
    """One choice or output that grows. `fixed` holds all of it but the texts."""

    fixed: Any
    content: _Text = field(default_factory=_Text)
    reasoning: _Text = field(default_factory=_Text)
    calls: dict[int, _Call] = field(default_factory=dict)
    token_count: int = 0
    finished: bool = False


class Accumulator(ABC, Generic[DeltaT, ResponseT]):
    """What has come of a response so far."""

    def __init__(self) -> None:
        self.begun = False
        """Whether any event has come, after which a call is not made again."""
        self.start: output_pb2.StreamStart | None = None
        self._end: output_pb2.StreamEnd | None = None
        self._outputs: dict[int, _Output] = {}

    def feed(self, event: Any) -> DeltaT | None:
        """Takes an event in, and gives its delta where it has one. An unknown event is left aside."""
        self.begun = True
        match event.WhichOneof("event"):
            case "start":
                self.start = event.start
            case "delta":
                self._merge(self._output(event.delta.index), event.delta)
                delta: DeltaT = event.delta
                return delta
            case "finish":
                self._finish(event.finish)
            case "end":
                self._end = event.end
        return None

    def check_complete(self) -> None:
        """Raises where the events so far are not a whole stream.

        Raises:
            IncompleteStreamError: The end is missing, or the finish of an output.
        """
        if self._end is None:
            raise IncompleteStreamError(grpc.StatusCode.UNAVAILABLE, "the stream ended without its end event")
        open_ones = [index for index, output in self._outputs.items() if not output.finished]
        if open_ones:
            message = f"the stream ended without the finish of output {min(open_ones)}"
            raise IncompleteStreamError(grpc.StatusCode.UNAVAILABLE, message)

    def text(self, index: int) -> str:
        """Text of one output so far."""
        output = self._outputs.get(index)
        return str(output.content) if output is not None else ""

    def response(self) -> ResponseT:
        """What there is so far, as a new message."""
        response: Any = self._empty()
        if self.start is not None:
            response.request_id = self.start.request_id
            response.model = self.start.model
            response.create_time.CopyFrom(self.start.create_time)
            if self.start.HasField("prompt"):
                response.prompt.CopyFrom(self.start.prompt)
            response.usage.CopyFrom(self._usage(self.start))
        if self._end is not None:
            response.usage.CopyFrom(self._end.usage)
            response.timing.CopyFrom(self._end.timing)
        self._put(response, (self._outputs[index] for index in sorted(self._outputs)))
        whole: ResponseT = response
        return whole

    def _usage(self, start: output_pb2.StreamStart) -> output_pb2.Usage:
        """Counts until the end brings the server's own: outputs count once they have finished."""
        generated = sum(output.token_count for output in self._outputs.values())
        return output_pb2.Usage(
            prompt_token_count=start.prompt_token_count,
            output_token_count=generated,
            total_token_count=start.prompt_token_count + generated,
            cached_token_count=start.cached_token_count,
        )

    def _output(self, index: int) -> _Output:
        if index not in self._outputs:
            self._outputs[index] = _Output(self._fixed(index))
        return self._outputs[index]

    def _finish(self, finish: output_pb2.OutputFinish) -> None:
        output = self._output(finish.index)
        output.finished = True
        output.token_count = finish.output_token_count
        output.fixed.finish_reason = finish.finish_reason
        if finish.HasField("stop_match"):
            output.fixed.stop_match.CopyFrom(finish.stop_match)

    @abstractmethod
    def _empty(self) -> ResponseT: ...

    @abstractmethod
    def _fixed(self, index: int) -> Any: ...

    @abstractmethod
    def _merge(self, output: _Output, delta: DeltaT) -> None: ...

    @abstractmethod
    def _put(self, response: ResponseT, outputs: Iterable[_Output]) -> None: ...


class ChatAccumulator(Accumulator[chat_pb2.ChatDelta, chat_pb2.ChatResponse]):
    """A ChatResponse from the events of StreamChat."""

    def _empty(self) -> chat_pb2.ChatResponse:
        return chat_pb2.ChatResponse()

    def _fixed(self, index: int) -> chat_pb2.ChatChoice:
        return chat_pb2.ChatChoice(index=index)

    def _merge(self, output: _Output, delta: chat_pb2.ChatDelta) -> None:
        output.content.add(delta.content)
        output.reasoning.add(delta.reasoning)
        for part in delta.tool_calls:
            call = output.calls.setdefault(part.index, _Call())
            call.id = call.id or part.id
            call.name = call.name or part.name
            call.arguments.add(part.arguments)
        output.fixed.token_ids.extend(delta.token_ids)
        output.fixed.logprobs.extend(delta.logprobs)

    def _put(self, response: chat_pb2.ChatResponse, outputs: Iterable[_Output]) -> None:
        for output in outputs:
            choice = response.choices.add()
            choice.CopyFrom(output.fixed)
            choice.content = str(output.content)
            choice.reasoning = str(output.reasoning)
            for index in sorted(output.calls):
                call = output.calls[index]
                choice.tool_calls.add(id=call.id, name=call.name, arguments=str(call.arguments))


class GenerateAccumulator(Accumulator[generation_pb2.GenerateDelta, generation_pb2.GenerateResponse]):
    """A GenerateResponse from the events of StreamGenerate."""

    def _empty(self) -> generation_pb2.GenerateResponse:
        return generation_pb2.GenerateResponse()

    def _fixed(self, index: int) -> generation_pb2.GeneratedOutput:
        return generation_pb2.GeneratedOutput(index=index)

    def _merge(self, output: _Output, delta: generation_pb2.GenerateDelta) -> None:
        output.content.add(delta.text)
        output.fixed.token_ids.extend(delta.token_ids)
        output.fixed.logprobs.extend(delta.logprobs)

    def _put(self, response: generation_pb2.GenerateResponse, outputs: Iterable[_Output]) -> None:
        for output in outputs:
            generated = response.outputs.add()
            generated.CopyFrom(output.fixed)
            generated.text = str(output.content)
