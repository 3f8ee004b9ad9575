"""`/v1/completions`: the request -> one `GenerateRequest` a prompt, and their responses -> the reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenwire.v1 import generation_pb2, output_pb2
from tokenwire_server.rest.openai.fields import Fields, check_range, invalid, unsupported
from tokenwire_server.rest.openai.legacy_logprobs import LegacyLogprobs
from tokenwire_server.rest.openai.options import StreamOptions, read_model, read_service_tier, read_stream
from tokenwire_server.rest.openai.prompts import Prompt, read_prompts
from tokenwire_server.rest.openai.replies import finish_name, prompt_logprobs, reply_id, stop_reason, usage_dict
from tokenwire_server.rest.openai.sampling import read_call_fields, read_sampling, refuse_unsupported
from tokenwire_server.rest.openai.structured import read_structured_output
from tokenwire_server.rest.openai.usage import UsageTail

__all__ = ["CompletionCall", "completion_reply", "read_completion"]

_MAX_PROMPTS = 1024
_MAX_LOGPROBS = 5
_DEFAULT_MAX_TOKENS = 16


@dataclass(frozen=True, slots=True)
class CompletionCall:
    """A translated request, and what its reply's shape depends on."""

    requests: list[generation_pb2.GenerateRequest]
    """One for each prompt, in their order."""
    stream: StreamOptions | None
    n: int = 1
    logprobs: bool = False
    echo: bool = False
    token_ids: bool = False
    """`return_token_ids` was asked, and not only needed for continuous usage."""
    prompt_logprobs: bool = False
    """vLLM's `prompt_logprobs` was asked, and not only needed for `echo`."""
    service_tier: str | None = None
    request_id: str = ""
    """`request_id` of the body."""

    def first_offset(self, prompt: int) -> int:
        """Where `text_offset` starts, in characters: after the prompt, unless it is echoed."""
        return 0 if self.echo else len(self.requests[prompt].text)


def read_completion(body: dict[str, Any]) -> CompletionCall:
    """Translates a request.

    Raises:
        OpenAIError: 400 naming the parameter.
    """
    fields = Fields(body)
    base = generation_pb2.GenerateRequest(model=read_model(fields))
    prompts = read_prompts(fields, "prompt", _MAX_PROMPTS)
    stream = read_stream(fields)
    refuse_unsupported(fields)
    if fields.boolean("add_special_tokens") is False:
        raise unsupported("add_special_tokens")
    _check_max_tokens(fields)
    read_sampling(fields, base.sampling)
    if not base.sampling.HasField("max_tokens"):
        base.sampling.max_tokens = max(_DEFAULT_MAX_TOKENS, base.sampling.min_tokens)
    read_call_fields(fields, base, stream=stream is not None)
    structured = read_structured_output(fields)
    if structured is not None:
        base.structured_output.CopyFrom(structured)
    wants_prompt = base.output.HasField("prompt_logprobs")
    _read_logprobs(fields, base)
    token_ids = base.output.return_token_ids
    if stream is not None and stream.continuous_usage:
        base.output.return_token_ids = True  # the only count of tokens that a delta carries
    return CompletionCall(
        requests=_fan_out(base, prompts),
        stream=stream,
        n=base.sampling.n or 1,
        logprobs=base.output.HasField("logprobs"),
        echo=base.output.echo,
        token_ids=token_ids,
        prompt_logprobs=wants_prompt,
        service_tier=read_service_tier(fields),
        request_id=base.request_id,
    )


def _check_max_tokens(fields: Fields) -> None:
    # OpenAI allows 0 here, with echo; the contract's least is 1.
    value = fields.integer("max_tokens")
    if value is None:
        return
    check_range("max_tokens", value, 0, None)
    if value == 0 and not fields.boolean("echo"):
        raise invalid("max_tokens", "Invalid 'max_tokens': 0 is only possible with 'echo'.", "integer_below_min_value")
    if value == 0:
        raise unsupported("max_tokens", "of 0 is not supported by this server")


def _read_logprobs(fields: Fields, base: generation_pb2.GenerateRequest) -> None:
    count = fields.integer("logprobs", 0, _MAX_LOGPROBS)
    if count is None:
        return
    base.output.logprobs = count
    if base.output.echo and not base.output.HasField("prompt_logprobs"):
        base.output.prompt_logprobs = count


def _fan_out(base: generation_pb2.GenerateRequest, prompts: Sequence[Prompt]) -> list[generation_pb2.GenerateRequest]:
    requests = []
    for index, prompt in enumerate(prompts):
        request = generation_pb2.GenerateRequest()
        request.CopyFrom(base)
        if isinstance(prompt, str):
            request.text = prompt
        else:
            request.token_ids.ids.extend(prompt)
        if base.request_id and len(prompts) > 1:
            request.request_id = f"{base.request_id[:120]}-{index}"
        requests.append(request)
    return requests


def completion_reply(
    responses: Sequence[generation_pb2.GenerateResponse], call: CompletionCall, request_id: str
) -> dict[str, Any]:
    """The `text_completion` object; choices are prompt-major, and each prompt is counted once."""
    usage = UsageTail(None)
    for response in responses:
        usage.add(response.usage)
    reply: dict[str, Any] = {
        "id": reply_id("cmpl", call.request_id or request_id),
        "object": "text_completion",
        "created": responses[0].create_time.seconds,
        "model": responses[0].model or call.requests[0].model,
        "choices": [
            _choice(output, response.prompt, prompt, call)
            for prompt, response in enumerate(responses)
            for output in response.outputs
        ],
        "usage": usage_dict(usage.total),
    }
    if call.service_tier:
        reply["service_tier"] = call.service_tier
    return reply


def _choice(
    output: generation_pb2.GeneratedOutput, info: output_pb2.PromptInfo, prompt: int, call: CompletionCall
) -> dict[str, Any]:
    logprobs = None
    if call.logprobs:
        tokens = [*info.logprobs, *output.logprobs] if call.echo else output.logprobs
        logprobs = LegacyLogprobs(call.first_offset(prompt)).take(tokens)
    choice: dict[str, Any] = {
        "text": output.text,
        "index": prompt * call.n + output.index,
        "logprobs": logprobs,
        "finish_reason": finish_name(output.finish_reason),
    }
    reason = stop_reason(output.stop_match)
    if reason is not None:
        choice["stop_reason"] = reason
    if call.token_ids:
        choice["token_ids"] = list(output.token_ids)
        choice["prompt_token_ids"] = list(info.token_ids)
    if call.prompt_logprobs:
        choice["prompt_logprobs"] = prompt_logprobs(info.logprobs)
    return choice
