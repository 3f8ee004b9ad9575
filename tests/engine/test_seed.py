"""A seed on the real model."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.engine.conftest import RealService
from tokenwire.v1 import generation_pb2, generation_pb2_grpc

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]


async def sampled(service: RealService, prompt: list[int], seed: int) -> list[int]:
    request = generation_pb2.GenerateRequest(
        token_ids={"ids": prompt},
        sampling={"temperature": 1.0, "seed": seed, "max_tokens": 8, "ignore_eos": True},
        output={"return_token_ids": True},
    )
    answer = await generation_pb2_grpc.GenerationServiceStub(service.channel).Generate(request)
    return list(answer.outputs[0].token_ids)


async def test_a_seed_holds_for_a_prompt_that_takes_several_steps(service: RealService) -> None:
    chooser = random.Random(3)
    prompts = [[chooser.randrange(100, 40_000) for _ in range(2600)] for _ in range(2)]
    first = await asyncio.gather(*(sampled(service, prompt, seed) for seed, prompt in enumerate(prompts)))
    # Now the prompts are in the prefix cache, and the first step is the last of the prompt.
    again = [await sampled(service, prompt, seed) for seed, prompt in enumerate(prompts)]
    assert first == again
    assert all(len(ids) == 8 for ids in first)
    assert await sampled(service, prompts[0], 99) != first[0]
