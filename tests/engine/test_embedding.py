"""Embeddings from a real embedding model, on a plain server: one engine serves one model."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.engine.conftest import OfflineChat
from tokenwire.v1 import (
    chat_pb2,
    chat_pb2_grpc,
    embedding_pb2,
    embedding_pb2_grpc,
    generation_pb2,
    model_pb2,
    model_pb2_grpc,
    tokenization_pb2,
    tokenization_pb2_grpc,
)
from tokenwire_server.embedded import provide

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

MODEL = "all-minilm-l6-v2"


@pytest.fixture(scope="module")
async def embedder(
    offline_environment: dict[str, str],
    offline_chat: OfflineChat,  # needed later: two engines that load at once take less time than one after the other
) -> AsyncIterator[grpc.aio.Channel]:
    folder = provide(f"embedded:{MODEL}", print)
    kwargs = '{"runner": "pooling", "dtype": "float32", "enforce_eager": true}'
    program = Path(__file__).with_name("plain_engine.py")
    server = subprocess.Popen(
        [sys.executable, program, MODEL, folder, kwargs],
        env=offline_environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    port = next((line.split()[1] for line in server.stdout if line.startswith("port ")), None)
    assert port is not None, "the embedding engine did not start"
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    server.communicate("", timeout=60)


async def embed(channel: grpc.aio.Channel, *texts: str, **kwargs: Any) -> embedding_pb2.EmbedResponse:
    inputs = [embedding_pb2.EmbedInput(text=text) for text in texts]
    stub = embedding_pb2_grpc.EmbeddingServiceStub(channel)
    return await stub.Embed(embedding_pb2.EmbedRequest(inputs=inputs, **kwargs))


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


async def test_near_texts_have_near_vectors(embedder: grpc.aio.Channel) -> None:
    response = await embed(embedder, "A cat sits on the mat.", "A kitten lies on a rug.", "Interest rates rose by 2 %.")
    cat, kitten, rates = (embedding.values for embedding in response.embeddings)
    assert len(cat) == 384
    assert [embedding.index for embedding in response.embeddings] == [0, 1, 2]
    assert cosine(cat, kitten) > cosine(cat, rates) + 0.3
    assert response.usage.prompt_token_count == sum(e.prompt_token_count for e in response.embeddings)


async def test_token_ids_give_the_vector_of_their_text(embedder: grpc.aio.Channel) -> None:
    tokens = tokenization_pb2_grpc.TokenizationServiceStub(embedder)
    ids = (await tokens.Tokenize(tokenization_pb2.TokenizeRequest(text="A cat."))).token_ids
    by_ids = embedding_pb2.EmbedInput(token_ids=generation_pb2.TokenIds(ids=ids))
    request = embedding_pb2.EmbedRequest(inputs=[by_ids])
    response = await embedding_pb2_grpc.EmbeddingServiceStub(embedder).Embed(request)
    expected = (await embed(embedder, "A cat.")).embeddings[0].values
    assert response.embeddings[0].values == pytest.approx(list(expected), abs=1e-5)


async def test_an_input_over_the_context_is_refused_or_truncated(embedder: grpc.aio.Channel) -> None:
    long = "word " * 2000
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await embed(embedder, long)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "maximum context length" in (caught.value.details() or "")
    assert (await embed(embedder, long, truncate_prompt_tokens=16)).usage.prompt_token_count == 16


async def test_dimensions_where_the_model_has_none_are_refused(embedder: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await embed(embedder, "a", dimensions=8)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "dimensions" in (caught.value.details() or "")


async def test_chat_to_an_embedding_model_is_the_wrong_task(embedder: grpc.aio.Channel) -> None:
    message = chat_pb2.ChatMessage(role=chat_pb2.ROLE_USER, content=[chat_pb2.ContentPart(text="hi")])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await chat_pb2_grpc.ChatServiceStub(embedder).Chat(chat_pb2.ChatRequest(messages=[message]))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_the_model_says_what_it_is(embedder: grpc.aio.Channel) -> None:
    models = (await model_pb2_grpc.ModelServiceStub(embedder).ListModels(model_pb2.ListModelsRequest())).models
    assert [(m.id, m.task, m.embedding_dimensions) for m in models] == [(MODEL, model_pb2.MODEL_TASK_EMBED, 384)]
