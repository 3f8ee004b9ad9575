"""Folds a stream of events into the whole response: how unary calls answer."""

from __future__ import annotations

from tokenwire.v1 import chat_pb2, generation_pb2, output_pb2
from tokenwire_server.engine.protocol import ChatEvents, GenerateEvents

__all__ = ["collect_chat", "collect_generate"]


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


def _tool_calls(choice: chat_pb2.ChatChoice, deltas: list[chat_pb2.ToolCallDelta]) -> None:
    for delta in deltas:
        while len(choice.tool_calls) <= delta.index:
            choice.tool_calls.add()
        call = choice.tool_calls[delta.index]
        call.id = call.id or delta.id
        call.name = call.name or delta.name
        call.arguments += delta.arguments


async def collect_chat(events: ChatEvents) -> chat_pb2.ChatResponse:
    """Reads a whole chat stream."""
    response = chat_pb2.ChatResponse()
    choices: dict[int, chat_pb2.ChatChoice] = {}
    content: dict[int, list[str]] = {}
    async for event in events:
        kind = event.WhichOneof("event")
        if kind == "delta":
            delta = event.delta
            choice = choices.setdefault(delta.index, chat_pb2.ChatChoice(index=delta.index))
            content.setdefault(delta.index, []).append(delta.content)
            choice.reasoning += delta.reasoning
            _tool_calls(choice, list(delta.tool_calls))
            choice.token_ids.extend(delta.token_ids)
            choice.logprobs.extend(delta.logprobs)
        elif kind == "finish":
            index = event.finish.index
            _finish(choices.setdefault(index, chat_pb2.ChatChoice(index=index)), event.finish)
        elif kind == "start":
            _head(response, event.start)
        elif kind == "end":
            _tail(response, event.end)
    for index in sorted(choices):
        choices[index].content = "".join(content.get(index, ()))
        response.choices.append(choices[index])
    return response


async def collect_generate(events: GenerateEvents) -> generation_pb2.GenerateResponse:
    """Reads a whole generate stream."""
    response = generation_pb2.GenerateResponse()
    outputs: dict[int, generation_pb2.GeneratedOutput] = {}
    text: dict[int, list[str]] = {}
    async for event in events:
        kind = event.WhichOneof("event")
        if kind == "delta":
            delta = event.delta
            output = outputs.setdefault(delta.index, generation_pb2.GeneratedOutput(index=delta.index))
            text.setdefault(delta.index, []).append(delta.text)
            output.token_ids.extend(delta.token_ids)
            output.logprobs.extend(delta.logprobs)
        elif kind == "finish":
            index = event.finish.index
            _finish(outputs.setdefault(index, generation_pb2.GeneratedOutput(index=index)), event.finish)
        elif kind == "start":
            _head(response, event.start)
        elif kind == "end":
            _tail(response, event.end)
    for index in sorted(outputs):
        outputs[index].text = "".join(text.get(index, ()))
        response.outputs.append(outputs[index])
    return response
