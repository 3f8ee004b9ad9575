"""`ChatResponse` -> the `response` object of `/v1/responses`."""

from __future__ import annotations

from typing import Any

from tokenwire.v1 import chat_pb2, output_pb2
from tokenwire_server.rest.openai.replies import chat_logprobs, finish_name, reply_id
from tokenwire_server.rest.openai.responses import ResponseCall

__all__ = ["ResponseShapes", "response_reply"]


class ResponseShapes:
    """Builds the objects of one reply, streamed or not.

    Args:
        call: The translated request.
        request_id: Names the reply where the body named none.
        model: That answers.
        created_at: When the request came, Unix seconds.
    """

    def __init__(self, call: ResponseCall, request_id: str, model: str, created_at: int) -> None:
        self._call = call
        self._request_id = call.request.request_id or request_id
        self._model = model or call.request.model
        self._created_at = created_at

    def item_id(self, kind: str, index: int) -> str:
        """Id of an output item, such as `msg_1f..._0`; unique in the reply."""
        return f"{reply_id(kind, self._request_id).replace('-', '_', 1)}_{index}"

    def response(
        self,
        status: str,
        output: list[dict[str, Any]],
        end: output_pb2.StreamEnd | chat_pb2.ChatResponse | None = None,
        cut: str | None = None,
    ) -> dict[str, Any]:
        """The `response` object.

        Args:
            status: `in_progress`, `completed` or `incomplete`.
            output: Its items.
            end: Token counts and time, once they are known.
            cut: Why it is incomplete.
        """
        took_s = end.timing.total_duration.seconds if end is not None else 0
        usage = {"usage": _usage(end.usage)} if end is not None else {}
        return {
            "id": reply_id("resp", self._request_id).replace("-", "_", 1),
            "object": "response",
            "created_at": self._created_at,
            "status": status,
            "completed_at": self._created_at + took_s if status == "completed" else None,
            "error": None,
            "incomplete_details": {"reason": cut} if cut else None,
            "model": self._model,
            "output": output,
            **usage,
            **self._call.echo,
        }

    def reasoning(self, index: int, text: str, status: str) -> dict[str, Any]:
        """A reasoning item: the text itself, no summary of it."""
        content = [{"type": "reasoning_text", "text": text}] if text else []
        item_id = self.item_id("rs", index)
        return {"id": item_id, "type": "reasoning", "summary": [], "content": content, "status": status}

    def message(self, index: int, content: list[dict[str, Any]], status: str) -> dict[str, Any]:
        """A message item."""
        item_id = self.item_id("msg", index)
        return {"id": item_id, "type": "message", "status": status, "role": "assistant", "content": content}

    def function_call(self, index: int, call: chat_pb2.ToolCall, status: str) -> dict[str, Any]:
        """A function call item."""
        return {
            "id": self.item_id("fc", index),
            "type": "function_call",
            "status": status,
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
        }

    def ending(self, reason: int) -> tuple[str, str | None]:
        """Status and the reason of an incomplete reply."""
        name = finish_name(reason)
        if name == "length":
            return "incomplete", "max_output_tokens"
        return ("incomplete", name) if name == "content_filter" else ("completed", None)


def text_part(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    """The text of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def logprob_list(tokens: Any) -> list[dict[str, Any]]:
    """Logprobs of some tokens."""
    content: list[dict[str, Any]] = chat_logprobs(tokens)["content"]
    return content


def response_reply(response: chat_pb2.ChatResponse, call: ResponseCall, request_id: str) -> dict[str, Any]:
    """The whole reply."""
    shapes = ResponseShapes(call, request_id, response.model, response.create_time.seconds)
    choice = response.choices[0]
    status, cut = shapes.ending(choice.finish_reason)
    output: list[dict[str, Any]] = []
    if choice.reasoning:
        output.append(shapes.reasoning(len(output), choice.reasoning, "completed"))
    if choice.content or not choice.tool_calls:
        ended = status if not choice.tool_calls else "completed"
        part = text_part(choice.content, logprob_list(choice.logprobs) if call.logprobs else [])
        output.append(shapes.message(len(output), [part], ended))
    for number, one in enumerate(choice.tool_calls):
        ended = status if number == len(choice.tool_calls) - 1 else "completed"
        output.append(shapes.function_call(len(output), one, ended))
    return shapes.response(status, output, response, cut)


def _usage(usage: output_pb2.Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_token_count,
        "input_tokens_details": {"cached_tokens": usage.cached_token_count, "cache_write_tokens": 0},
        "output_tokens": usage.output_token_count,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_token_count},
        "total_tokens": usage.prompt_token_count + usage.output_token_count,
    }
