"""Folds a stream of events into the whole response: how unary calls answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from tokenwire.v1 import chat_pb2, generation_pb2, output_pb2
from tokenwire_server.engine.protocol import ChatEvents, GenerateEvents

__all__ = ["collect_chat", "collect_generate"]

_Output = TypeVar("_Output", chat_pb2.ChatChoice, generation_pb2.GeneratedOutput)


def _head(response: chat_pb2.ChatResponse | generation_pb2.GenerateResponse, start: output_pb2.StreamStart) -> None:
    response.request_id = start.request_id
    response.model = start.model
    response.create_time.CopyFrom(start.create_time)
    if start.HasField("prompt"):
        response.prompt.CopyFrom(start.prompt)


def _tail(response: chat_pb2.ChatResponse | generation_pb2.GenerateResponse, end: output_pb2.StreamEnd) -> None:
    response.usage.CopyFrom(end.usage)
    response.timing.CopyFrom(end.timing)


def _finish(output: chat_pb2.ChatChoice | generation_pb2.GeneratedOutput, finish: output_pb2.OutputFinish) -> None:
    output.finish_reason = finish.finish_reason
    if finish.HasField("stop_match"):
        output.stop_match.CopyFrom(finish.stop_match)


def _tool_calls(choice: chat_pb2.ChatChoice, deltas: Iterable[chat_pb2.ToolCallDelta]) -> None:
    for delta in deltas:
        while len(choice.tool_calls) <= delta.index:
            choice.tool_calls.add()
        call = choice.tool_calls[delta.index]
        call.id = call.id or delta.id
        call.name = call.name or delta.name


async def collect_chat(events: ChatEvents) -> chat_pb2.ChatResponse:
    """Reads a whole chat stream."""
    response = chat_pb2.ChatResponse()
    choices = await _collect(events, response, chat_pb2.ChatChoice, ("content", "reasoning"))
    response.choices.extend(choices)
    return response


async def collect_generate(events: GenerateEvents) -> generation_pb2.GenerateResponse:
    """Reads a whole generate stream."""
    response = generation_pb2.GenerateResponse()
    outputs = await _collect(events, response, generation_pb2.GeneratedOutput, ("text",))
    response.outputs.extend(outputs)
    return response


async def _collect(
    events: Any,
    response: chat_pb2.ChatResponse | generation_pb2.GenerateResponse,
    output_type: Callable[..., _Output],
    texts: Sequence[str],
) -> list[_Output]:
    """Fills in the head and tail; returns its outputs by index. `texts`: the fields that deltas append to."""
    outputs: dict[int, _Output] = {}
    pieces: dict[tuple[int, str], list[str]] = defaultdict(list)  # joined once: appending to a field copies it whole
    arguments: dict[tuple[int, int], list[str]] = defaultdict(list)
    async for event in events:
        kind = event.WhichOneof("event")
        if kind == "delta":
            delta = event.delta
            output = outputs.setdefault(delta.index, output_type(index=delta.index))
            for name in texts:
                pieces[delta.index, name].append(getattr(delta, name))
            if isinstance(output, chat_pb2.ChatChoice):
                _tool_calls(output, delta.tool_calls)
                for call in delta.tool_calls:
                    arguments[delta.index, call.index].append(call.arguments)
            output.token_ids.extend(delta.token_ids)
            output.logprobs.extend(delta.logprobs)
        elif kind == "finish":
            index = event.finish.index
            _finish(outputs.setdefault(index, output_type(index=index)), event.finish)
        elif kind == "start":
            _head(response, event.start)
        elif kind == "end":
            _tail(response, event.end)
    for (index, name), parts in pieces.items():
        setattr(outputs[index], name, "".join(parts))
    for (index, call_index), parts in arguments.items():
        choice: Any = outputs[index]
        choice.tool_calls[call_index].arguments = "".join(parts)
    return [outputs[index] for index in sorted(outputs)]
