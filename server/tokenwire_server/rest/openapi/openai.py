"""Schemas of the OpenAI surface's requests and replies, by hand."""

from __future__ import annotations

from typing import Any

from tokenwire_server.rest.openapi.params import (
    BOOLEAN,
    OBJECT,
    STRING,
    array,
    choice,
    integer,
    nullable,
    number,
    object_of,
    sampling_properties,
)
from tokenwire_server.rest.openapi.schemas import Schema

__all__ = ["openai_schemas"]

_TOKENS = array(integer(0), 1)
_PROMPT: Schema = {"anyOf": [{"type": "string", "minLength": 1}, array(STRING, 1), _TOKENS, array(_TOKENS, 1)]}
_FUNCTION = object_of(
    ["name"],
    name={"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$"},
    description=nullable(STRING),
    parameters=nullable(OBJECT),
    strict=nullable(BOOLEAN),
)
_TOOL = object_of(["type", "function"], type=choice("function"), function=_FUNCTION)
_CALL = object_of(
    ["id", "type", "function"],
    id=STRING,
    type=choice("function"),
    function=object_of(["name", "arguments"], name=STRING, arguments=STRING),
)
_PART = object_of(["type"], type=choice("text", "image_url", "input_audio", "file", "refusal"), text=STRING)
_MESSAGE = object_of(
    ["role"],
    role=choice("system", "developer", "user", "assistant", "tool", "function"),
    content={"anyOf": [STRING, array(_PART, 1), {"type": "null"}]},
    name=STRING,
    tool_calls=nullable(array(_CALL)),
    tool_call_id=STRING,
    reasoning=nullable(STRING),
    reasoning_content=nullable(STRING),
)
_TOOL_CHOICE: Schema = {"anyOf": [choice("none", "auto", "required"), OBJECT, {"type": "null"}]}
_RESPONSE_FORMAT = object_of(
    ["type"],
    type=choice("text", "json_object", "json_schema", "structural_tag"),
    json_schema=object_of(["schema"], name=STRING, schema=OBJECT, strict=nullable(BOOLEAN)),
)
_STRUCTURED = object_of(
    json={"anyOf": [OBJECT, STRING]},
    regex=STRING,
    choice=array(STRING, 1, 256),
    grammar=STRING,
    json_object=BOOLEAN,
    structural_tag={"anyOf": [OBJECT, STRING]},
)
_STREAMING: dict[str, Schema] = {
    "stream": nullable(BOOLEAN),
    "stream_options": nullable(object_of(include_usage=BOOLEAN, continuous_usage_stats=BOOLEAN)),
}
_CALL_FIELDS: dict[str, Schema] = {
    "priority": nullable(integer()),
    "cache_salt": nullable(STRING),
    "session_id": nullable(STRING),
    "request_id": nullable({"type": "string", "pattern": "^[A-Za-z0-9._-]{0,128}$"}),
    "user": nullable(STRING),
    "service_tier": nullable(choice("auto", "default", "flex", "scale", "priority")),
}
_OUTPUT: dict[str, Schema] = {
    "prompt_logprobs": nullable(integer(0, 20)),
    "return_token_ids": nullable(BOOLEAN),
    "echo": nullable(BOOLEAN),
    "stream_interval": nullable(integer(1, 1024)),
    "response_format": nullable(_RESPONSE_FORMAT),
    "structured_outputs": nullable(_STRUCTURED),
}
_EFFORT = choice("none", "minimal", "low", "medium", "high")


def _request(required: list[str], **properties: Schema) -> Schema:
    return object_of(["model", *required], model={"type": "string", "minLength": 1}, **properties)


def _chat() -> Schema:
    return _request(
        ["messages"],
        messages=array(_MESSAGE, 1, 4096),
        max_completion_tokens=nullable(integer(1)),
        logprobs=nullable(BOOLEAN),
        top_logprobs=nullable(integer(0, 20)),
        tools=nullable(array(_TOOL, high=128)),
        tool_choice=_TOOL_CHOICE,
        parallel_tool_calls=nullable(BOOLEAN),
        functions=nullable(array(_FUNCTION, high=128)),
        function_call={"anyOf": [choice("none", "auto"), object_of(["name"], name=STRING), {"type": "null"}]},
        reasoning_effort=nullable(_EFFORT),
        include_reasoning=nullable(BOOLEAN),
        thinking_token_budget=nullable(integer(0)),
        add_generation_prompt=nullable(BOOLEAN),
        continue_final_message=nullable(BOOLEAN),
        chat_template_kwargs=nullable(OBJECT),
        **sampling_properties(),
        **_STREAMING,
        **_OUTPUT,
        **_CALL_FIELDS,
    )


def _completion() -> Schema:
    return _request(
        ["prompt"],
        prompt=_PROMPT,
        logprobs=nullable(integer(0, 5)),
        best_of=nullable(integer(1)),
        **sampling_properties(),
        **_STREAMING,
        **_OUTPUT,
        **_CALL_FIELDS,
    )


def _embedding() -> Schema:
    return _request(
        ["input"],
        input=_PROMPT,
        encoding_format=nullable(choice("float", "base64")),
        dimensions=nullable(integer(1)),
        truncate_prompt_tokens=nullable(integer(1)),
        priority=nullable(integer()),
        request_id=_CALL_FIELDS["request_id"],
        user=nullable(STRING),
    )


def _response() -> Schema:
    tool = object_of(["type", "name"], type=choice("function"), **_FUNCTION["properties"])
    form = object_of(["type"], type=choice("text", "json_object", "json_schema"), name=STRING, schema=OBJECT)
    left_out = frozenset(
        {"max_tokens", "n", "logit_bias", "bad_words", "allowed_token_ids", "stop_token_ids"}
        | {"truncate_prompt_tokens", "spaces_between_special_tokens"}
    )
    return _request(
        ["input"],
        input={"anyOf": [{"type": "string", "minLength": 1}, array(OBJECT, 1, 4096)]},
        instructions=nullable(STRING),
        max_output_tokens=nullable(integer(1)),
        include=nullable(array(STRING)),
        text=nullable(object_of(format=form, verbosity=choice("low", "medium", "high"))),
        reasoning=nullable(
            object_of(effort=nullable(_EFFORT), summary=nullable(choice("auto", "concise", "detailed")))
        ),
        tools=nullable(array(tool, high=128)),
        tool_choice=_TOOL_CHOICE,
        parallel_tool_calls=nullable(BOOLEAN),
        top_logprobs=nullable(integer(0, 20)),
        metadata=nullable(OBJECT),
        stream=nullable(BOOLEAN),
        store=nullable({"type": "boolean", "enum": [False]}),
        **sampling_properties(leave_out=left_out),
        **_CALL_FIELDS,
    )


def _anthropic(*, generates: bool) -> Schema:
    message = object_of(
        ["role", "content"], role=choice("user", "assistant", "system"), content={"anyOf": [STRING, array(OBJECT, 1)]}
    )
    tool = object_of(["name", "input_schema"], name=STRING, description=nullable(STRING), input_schema=OBJECT)
    common: dict[str, Schema] = {
        "messages": array(message, 1, 4096),
        "system": {"anyOf": [STRING, array(OBJECT), {"type": "null"}]},
        "tools": nullable(array(tool, high=128)),
        "tool_choice": nullable(object_of(["type"], type=choice("auto", "any", "tool", "none"), name=STRING)),
        "thinking": nullable(object_of(["type"], type=choice("enabled", "disabled", "adaptive"))),
    }
    if not generates:
        return _request(["messages"], **common)
    return _request(
        ["messages", "max_tokens"],
        max_tokens=integer(1),
        temperature=nullable(number(0, 1)),
        top_p=nullable({"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
        top_k=nullable(integer(-1)),
        stop_sequences=nullable(array({"type": "string", "minLength": 1}, high=16)),
        stream=nullable(BOOLEAN),
        **common,
    )


def openai_schemas() -> dict[str, Schema]:
    """Components of the OpenAI surface."""
    usage = object_of(["prompt_tokens", "total_tokens"], prompt_tokens=integer(0), total_tokens=integer(0))
    usage["properties"] |= {"completion_tokens": integer(0)}
    reply: dict[str, Any] = {"id": STRING, "object": STRING, "created": integer(), "model": STRING}
    error = object_of(
        ["message", "type", "param", "code"],
        message=STRING,
        type=STRING,
        param=nullable(STRING),
        code=nullable(STRING),
    )
    model = object_of(
        ["id", "object", "created", "owned_by"], id=STRING, object=STRING, created=integer(), owned_by=STRING
    )
    return {
        "Error": object_of(["error"], error=error),
        "AnthropicError": object_of(["type", "error"], type=choice("error"), error=OBJECT, request_id=STRING),
        "Model": model,
        "ModelList": object_of(["object", "data"], object=STRING, data=array(model)),
        "ChatCompletionRequest": _chat(),
        "ChatCompletion": object_of([*reply, "choices", "usage"], **reply, choices=array(OBJECT), usage=usage),
        "CompletionRequest": _completion(),
        "Completion": object_of([*reply, "choices", "usage"], **reply, choices=array(OBJECT), usage=usage),
        "EmbeddingRequest": _embedding(),
        "EmbeddingList": object_of(["object", "data"], object=STRING, data=array(OBJECT), model=STRING, usage=usage),
        "ResponseRequest": _response(),
        "Response": object_of(["id", "object", "output"], id=STRING, object=STRING, output=array(OBJECT)),
        "MessageRequest": _anthropic(generates=True),
        "Message": object_of(["id", "type", "content"], id=STRING, type=STRING, content=array(OBJECT)),
        "CountTokensRequest": _anthropic(generates=False),
        "TokenCount": object_of(["input_tokens"], input_tokens=integer(0)),
        "TokenizeRequest": object_of(
            model=nullable(STRING),
            prompt=STRING,
            messages=array(_MESSAGE, 1, 4096),
            add_special_tokens=nullable(BOOLEAN),
            return_token_strs=nullable(BOOLEAN),
            add_generation_prompt=nullable(BOOLEAN),
            continue_final_message=nullable(BOOLEAN),
        ),
        "Tokens": object_of(["count", "tokens"], count=integer(0), max_model_len=integer(), tokens=array(integer())),
        "DetokenizeRequest": object_of(["tokens"], model=nullable(STRING), tokens=array(integer(0))),
        "Detokenized": object_of(["prompt"], prompt=STRING),
    }
