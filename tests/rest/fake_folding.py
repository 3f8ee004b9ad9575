"""The unary answer that the events of a stream come to."""

from __future__ import annotations

from typing import Any

from tokenwire.v1 import chat_pb2, generation_pb2


def folded(request: Any, events: list[Any]) -> Any:
    """The answer to a request."""
    chat = isinstance(request, chat_pb2.ChatRequest)
    response: Any = chat_pb2.ChatResponse() if chat else generation_pb2.GenerateResponse()
    outputs = response.choices if chat else response.outputs
    for index in range(request.sampling.n or 1):
        outputs.add(index=index)
    for event in events:
        kind = event.WhichOneof("event")
        if kind == "start":
            response.model = event.start.model
            response.create_time.CopyFrom(event.start.create_time)
            response.prompt.CopyFrom(event.start.prompt)
        elif kind == "delta":
            _fold_delta(outputs[event.delta.index], event.delta, chat=chat)
        elif kind == "finish":
            outputs[event.finish.index].finish_reason = event.finish.finish_reason
            outputs[event.finish.index].stop_match.CopyFrom(event.finish.stop_match)
        else:
            response.usage.CopyFrom(event.end.usage)
    return response


def _fold_delta(output: Any, delta: Any, *, chat: bool) -> None:
    output.token_ids.extend(delta.token_ids)
    output.logprobs.extend(delta.logprobs)
    if not chat:
        output.text += delta.text
        return
    output.content += delta.content
    output.reasoning += delta.reasoning
    for call in delta.tool_calls:
        if call.name:
            output.tool_calls.add(id=call.id, name=call.name)
        output.tool_calls[call.index].arguments += call.arguments
