"""`/v1/chat/completions`: the request -> `ChatRequest`, and `ChatResponse` -> the reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokenwire.v1 import chat_pb2, output_pb2
from tokenwire_server.rest.openai.fields import Fields, invalid, unsupported
from tokenwire_server.rest.openai.messages import read_messages
from tokenwire_server.rest.openai.options import StreamOptions, read_model, read_service_tier, read_stream
from tokenwire_server.rest.openai.replies import (
    chat_logprobs,
    finish_name,
    prompt_logprobs,
    reply_id,
    stop_reason,
    usage_dict,
)
from tokenwire_server.rest.openai.sampling import read_call_fields, read_sampling, refuse_unsupported
from tokenwire_server.rest.openai.structured import read_structured_output
from tokenwire_server.rest.openai.tools import free_forced_call, read_tools

__all__ = ["EFFORTS", "ChatCall", "chat_reply", "read_chat", "read_template"]

EFFORTS = {
    "none": chat_pb2.ReasoningOptions.EFFORT_NONE,
    "minimal": chat_pb2.ReasoningOptions.EFFORT_MINIMAL,
    "low": chat_pb2.ReasoningOptions.EFFORT_LOW,
    "medium": chat_pb2.ReasoningOptions.EFFORT_MEDIUM,
    "high": chat_pb2.ReasoningOptions.EFFORT_HIGH,
}


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A translated request, and what its reply's shape depends on."""

    request: chat_pb2.ChatRequest
    stream: StreamOptions | None
    """None where the reply is one body."""
    n: int = 1
    logprobs: bool = False
    token_ids: bool = False
    """`return_token_ids` was asked, and not only needed for continuous usage."""
    legacy_functions: bool = False
    """The reply says `function_call`, as the request said `functions`."""
    named_tool: bool = False
    """OpenAI ends a call of the one named tool with `stop`."""
    service_tier: str | None = None

    def finish(self, reason: int) -> str:
        """`finish_reason` of this call's choices."""
        name = finish_name(reason)
        if name != "tool_calls":
            return name
        if self.named_tool:
            return "stop"
        return "function_call" if self.legacy_functions else name


def read_chat(body: dict[str, Any]) -> ChatCall:
    """Translates a request.

    Raises:
        OpenAIError: 400 naming the parameter.
    """
    fields = Fields(body)
    request = chat_pb2.ChatRequest(model=read_model(fields))
    request.messages.extend(read_messages(fields))
    stream = read_stream(fields)
    refuse_unsupported(fields)
    if fields.boolean("add_special_tokens"):
        raise unsupported("add_special_tokens")
    read_sampling(fields, request.sampling)
    read_call_fields(fields, request, stream=stream is not None)
    structured = read_structured_output(fields)
    if structured is not None:
        request.structured_output.CopyFrom(structured)
    read_tools(fields, request)
    if fields.get("response_format") is not None:
        free_forced_call(request)
    _read_logprobs(fields, request)
    _read_reasoning(fields, request)
    read_template(fields, request)
    token_ids = request.output.return_token_ids
    if stream is not None and stream.continuous_usage:
        request.output.return_token_ids = True  # the only count of tokens that a delta carries
    return ChatCall(
        request=request,
        stream=stream,
        n=request.sampling.n or 1,
        logprobs=request.output.HasField("logprobs"),
        token_ids=token_ids,
        legacy_functions=fields.get("functions") is not None,
        named_tool=bool(request.tool_choice.function),
        service_tier=read_service_tier(fields),
    )


def _read_logprobs(fields: Fields, request: chat_pb2.ChatRequest) -> None:
    wanted = fields.boolean("logprobs")
    top = fields.integer("top_logprobs", 0, 20)
    if wanted:
        request.output.logprobs = top or 0
    elif top:
        message = "Invalid value for 'top_logprobs': only allowed when 'logprobs' is true."
        raise invalid("top_logprobs", message)


def _read_reasoning(fields: Fields, request: chat_pb2.ChatRequest) -> None:
    effort = fields.choice("reasoning_effort", tuple(EFFORTS))
    if effort is not None:
        request.reasoning.effort = EFFORTS[effort]
    budget = fields.integer("thinking_token_budget", 0)
    if budget is not None:
        request.reasoning.max_tokens = budget
    if fields.boolean("include_reasoning") is False:
        request.reasoning.include = False


def read_template(fields: Fields, request: chat_pb2.ChatRequest) -> None:
    """`add_generation_prompt`, `continue_final_message` and `chat_template_kwargs`."""
    for name in ("add_generation_prompt", "continue_final_message"):
        value = fields.boolean(name)
        if value is not None:
            setattr(request.template, name, value)
    kwargs = fields.object("chat_template_kwargs")
    if kwargs is not None and kwargs.data:
        request.template.kwargs.update(kwargs.data)


def chat_reply(response: chat_pb2.ChatResponse, call: ChatCall, request_id: str) -> dict[str, Any]:
    """The `chat.completion` object."""
    reply: dict[str, Any] = {
        "id": reply_id("chatcmpl", call.request.request_id or request_id),
        "object": "chat.completion",
        "created": response.create_time.seconds,
        "model": response.model or call.request.model,
        "choices": [_choice(choice, call) for choice in response.choices],
        "usage": usage_dict(response.usage),
    }
    if call.service_tier:
        reply["service_tier"] = call.service_tier
    if call.token_ids:
        reply["prompt_token_ids"] = list(response.prompt.token_ids)
    if call.request.output.HasField("prompt_logprobs"):
        reply["prompt_logprobs"] = prompt_logprobs(response.prompt.logprobs)
    return reply


def _choice(choice: chat_pb2.ChatChoice, call: ChatCall) -> dict[str, Any]:
    reply: dict[str, Any] = {
        "index": choice.index,
        "message": _message(choice, call),
        "logprobs": chat_logprobs(choice.logprobs) if call.logprobs else None,
        "finish_reason": call.finish(choice.finish_reason),
    }
    _add_extras(reply, choice.stop_match, choice.token_ids if call.token_ids else None)
    return reply


def _add_extras(reply: dict[str, Any], match: output_pb2.StopMatch, token_ids: Any) -> None:
    reason = stop_reason(match)
    if reason is not None:
        reply["stop_reason"] = reason
    if token_ids is not None:
        reply["token_ids"] = list(token_ids)


def _message(choice: chat_pb2.ChatChoice, call: ChatCall) -> dict[str, Any]:
    content: str | None = choice.content
    if choice.tool_calls and not content:
        content = None
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None, "annotations": []}
    if choice.reasoning:
        # vLLM renamed the key in 0.12; clients of either version read theirs.
        message["reasoning"] = message["reasoning_content"] = choice.reasoning
    if choice.tool_calls and call.legacy_functions:
        first = choice.tool_calls[0]
        message["function_call"] = {"name": first.name, "arguments": first.arguments}
    elif choice.tool_calls:
        message["tool_calls"] = [
            {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
            for one in choice.tool_calls
        ]
    return message
