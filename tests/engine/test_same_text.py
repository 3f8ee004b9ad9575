"""The same greedy prompt gives the same text and token ids through every door, and in vLLM by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.conftest import MAX_TOKENS, MODEL, PROMPTS, OfflineChat, RealService
from tokenwire.v1 import chat_pb2, chat_pb2_grpc, generation_pb2, generation_pb2_grpc, sampling_pb2

pytestmark = pytest.mark.engine

SAMPLING = sampling_pb2.SamplingParams(temperature=0, max_tokens=MAX_TOKENS)
OUTPUT = sampling_pb2.OutputOptions(return_token_ids=True)


@pytest.fixture(scope="module")
def reference(service: RealService, offline_chat: OfflineChat) -> dict[str, Any]:
    """vllm.LLM(...).chat in a process of its own."""
    return offline_chat.answers()


def chat_request(prompt: str) -> chat_pb2.ChatRequest:
    message = chat_pb2.ChatMessage(role=chat_pb2.ROLE_USER, content=[chat_pb2.ContentPart(text=prompt)])
    return chat_pb2.ChatRequest(messages=[message], sampling=SAMPLING, output=OUTPUT)


def generate_request(prompt_ids: list[int]) -> generation_pb2.GenerateRequest:
    ids = generation_pb2.TokenIds(ids=prompt_ids)
    return generation_pb2.GenerateRequest(token_ids=ids, sampling=SAMPLING, output=OUTPUT)


async def streamed(call: Any, field: str) -> tuple[str, list[int], list[int]]:
    text, ids, prompt = "", [], []
    async for event in call:
        if event.HasField("delta"):
            text += getattr(event.delta, field)
            ids.extend(event.delta.token_ids)
        elif event.HasField("start"):
            prompt.extend(event.start.prompt.token_ids)
    return text, ids, prompt


async def rest(service: RealService, prompt: str, *, stream: bool) -> tuple[str, list[int] | None]:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": MAX_TOKENS,
        "stream": stream,
        "return_token_ids": True,
    }
    reply = await service.http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    if not stream:
        choice = reply.json()["choices"][0]
        return choice["message"]["content"], choice.get("token_ids")
    lines = [line[6:] for line in reply.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    choices = [json.loads(line)["choices"][0] for line in lines[:-1]]
    ids = [i for choice in choices for i in choice.get("token_ids") or []]
    return "".join(choice["delta"].get("content") or "" for choice in choices), ids


@pytest.mark.timeout(240)
@pytest.mark.parametrize("prompt", PROMPTS)
async def test_every_door_says_the_same(service: RealService, reference: dict[str, Any], prompt: str) -> None:
    expected = reference[prompt]
    text, ids = expected["text"], expected["token_ids"]
    chat = chat_pb2_grpc.ChatServiceStub(service.channel)
    generation = generation_pb2_grpc.GenerationServiceStub(service.channel)

    whole = await chat.Chat(chat_request(prompt))
    assert list(whole.prompt.token_ids) == expected["prompt"]
    assert (whole.choices[0].content, list(whole.choices[0].token_ids)) == (text, ids)
    assert await streamed(chat.StreamChat(chat_request(prompt)), "content") == (text, ids, expected["prompt"])

    request = generate_request(expected["prompt"])
    raw = await generation.Generate(request)
    assert (raw.outputs[0].text, list(raw.outputs[0].token_ids)) == (text, ids)
    assert await streamed(generation.StreamGenerate(request), "text") == (text, ids, expected["prompt"])

    assert await rest(service, prompt, stream=False) == (text, ids)
    assert await rest(service, prompt, stream=True) == (text, ids)
