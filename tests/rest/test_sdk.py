from __future__ import annotations

import openai
import pytest
from openai.types.chat import ChatCompletionToolParam, ChatCompletionUserMessageParam
from tests.rest.fake_backend import FakeBackend, Script

from tokenwire.v1 import output_pb2
from tokenwire_server.errors import StatusError

MODEL = "org/tiny"
HI: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "hi"}]
TOOLS: list[ChatCompletionToolParam] = [
    {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}},
    }
]


async def test_create(sdk: openai.AsyncOpenAI, backend: FakeBackend) -> None:
    reply = await sdk.chat.completions.create(model=MODEL, messages=HI)
    assert reply.choices[0].message.content == "Hello world!"
    assert reply.usage is not None
    assert reply.usage.total_tokens == 8
    assert reply._request_id is not None
    assert reply._request_id.startswith("req_")


async def test_accumulated_stream_equals_plain(sdk: openai.AsyncOpenAI, backend: FakeBackend) -> None:
    plain = await sdk.chat.completions.create(model=MODEL, messages=HI, n=2, logprobs=True, top_logprobs=2)
    async with sdk.chat.completions.stream(
        model=MODEL, messages=HI, n=2, logprobs=True, top_logprobs=2, stream_options={"include_usage": True}
    ) as stream:
        whole = await stream.get_final_completion()
    assert whole.usage == plain.usage
    for one, other in zip(whole.choices, plain.choices, strict=True):
        assert (one.index, one.finish_reason, one.message.content) == (
            other.index,
            other.finish_reason,
            other.message.content,
        )
        assert one.message.role == "assistant"
        assert one.logprobs is not None
        assert other.logprobs is not None
        assert one.logprobs.content == other.logprobs.content


async def test_accumulated_tool_calls(sdk: openai.AsyncOpenAI, backend: FakeBackend) -> None:
    backend.script = Script(
        tokens=("Sure. ",),
        tool_calls=(("f", '{"x":"1"}'), ("f", '{"x":"2"}')),
        finish=output_pb2.FINISH_REASON_TOOL_CALLS,
    )
    async with sdk.chat.completions.stream(model=MODEL, messages=HI, tools=TOOLS) as stream:
        whole = await stream.get_final_completion()
    message = whole.choices[0].message
    assert message.content == "Sure. "
    assert message.tool_calls is not None
    assert [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls] == [
        ("call_0", "f", '{"x":"1"}'),
        ("call_1", "f", '{"x":"2"}'),
    ]
    assert whole.choices[0].finish_reason == "tool_calls"


async def test_completions_and_embeddings(sdk: openai.AsyncOpenAI, backend: FakeBackend) -> None:
    stream = await sdk.completions.create(model=MODEL, prompt=["a", "b"], stream=True)
    texts = ["", ""]
    async for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == ["Hello world!"] * 2
    vectors = await sdk.embeddings.create(model="mini", input=["a", "b"])  # asks for base64 by itself
    assert [one.embedding for one in vectors.data] == [[0.25, -0.5, 0.0], [0.25, -0.5, 1.0]]
    assert [one.id async for one in sdk.models.list()] == ["mini", "org/tiny", "org/tiny:poet"]
    assert (await sdk.models.retrieve("org/tiny")).id == "org/tiny"


async def test_errors_keep_their_parts(sdk: openai.AsyncOpenAI, backend: FakeBackend) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        await sdk.chat.completions.create(model="nope", messages=HI)
    assert (missing.value.code, missing.value.type) == ("model_not_found", "invalid_request_error")
    with pytest.raises(openai.BadRequestError) as bad:
        await sdk.chat.completions.create(model=MODEL, messages=HI, temperature=3)
    assert (bad.value.code, bad.value.param) == ("decimal_above_max_value", "temperature")
    backend.keys = frozenset({"other"})
    with pytest.raises(openai.AuthenticationError) as stranger:
        await sdk.models.list()
    assert stranger.value.code == "invalid_api_key"


async def test_mid_stream_error_is_raised(sdk: openai.AsyncOpenAI, backend: FakeBackend) -> None:
    backend.script = Script(raises=StatusError.retry_later("ENGINE_DEAD", "The engine died.", 1), raise_after=1)
    stream = await sdk.chat.completions.create(model=MODEL, messages=HI, stream=True)
    with pytest.raises(openai.APIError, match="The engine died"):
        async for _ in stream:
            pass


async def test_overload_is_retried_after_the_delay(sdk: openai.AsyncOpenAI, backend: FakeBackend) -> None:
    backend.script = Script(raises=StatusError.retry_later("QUEUE_FULL", "Full.", 0.1))
    with pytest.raises(openai.RateLimitError) as full:
        await sdk.chat.completions.create(model=MODEL, messages=HI)
    assert full.value.response.headers["retry-after"] == "1"
    assert full.value.code == "rate_limit_exceeded"
