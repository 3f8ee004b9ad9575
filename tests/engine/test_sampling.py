"""Each sampling parameter does what it says, on the real engine."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.conftest import RealService
from tokenwire.v1 import generation_pb2, generation_pb2_grpc, output_pb2, sampling_pb2, tokenization_pb2_grpc
from tokenwire.v1 import tokenization_pb2 as tok

pytestmark = pytest.mark.engine

PROMPT = "The capital of France is"


async def generate(
    service: RealService, prompt: str = PROMPT, output: dict[str, Any] | None = None, **knobs: Any
) -> generation_pb2.GenerateResponse:
    knobs = {"temperature": 0, "max_tokens": 12, **knobs}
    request = generation_pb2.GenerateRequest(
        text=prompt,
        sampling=sampling_pb2.SamplingParams(**knobs),
        output=sampling_pb2.OutputOptions(**{"return_token_ids": True, **(output or {})}),
    )
    return await generation_pb2_grpc.GenerationServiceStub(service.channel).Generate(request)


async def text(service: RealService, **knobs: Any) -> str:
    return (await generate(service, **knobs)).outputs[0].text


async def ids_of(service: RealService, string: str) -> list[int]:
    stub = tokenization_pb2_grpc.TokenizationServiceStub(service.channel)
    return list((await stub.Tokenize(tok.TokenizeRequest(text=string, add_special_tokens=False))).token_ids)


async def test_max_tokens_and_why_it_ended(service: RealService) -> None:
    output = (await generate(service, max_tokens=3, ignore_eos=True)).outputs[0]
    assert len(output.token_ids) == 3
    assert output.finish_reason == output_pb2.FINISH_REASON_LENGTH
    assert not output.HasField("stop_match")


async def test_a_stop_text_is_named_and_never_leaks(service: RealService) -> None:
    whole = await text(service, ignore_eos=True)
    stop = whole[4:7]
    response = await generate(service, stop=["never comes", stop], ignore_eos=True)
    output = response.outputs[0]
    assert output.finish_reason == output_pb2.FINISH_REASON_STOP
    assert output.stop_match.stop == stop
    assert output.text == whole[: whole.index(stop)]
    kept = await text(service, stop=[stop], include_stop_str_in_output=True, ignore_eos=True)
    assert kept == whole[: whole.index(stop) + len(stop)]


async def test_a_stop_text_never_leaks_while_it_may_still_match(service: RealService) -> None:
    whole = await text(service, ignore_eos=True)
    stop = whole[3:9]
    stub = generation_pb2_grpc.GenerationServiceStub(service.channel)
    knobs = sampling_pb2.SamplingParams(temperature=0, max_tokens=12, stop=[stop], ignore_eos=True)
    call = stub.StreamGenerate(generation_pb2.GenerateRequest(text=PROMPT, sampling=knobs))
    streamed = ""
    async for event in call:
        streamed += event.delta.text
        assert whole[: whole.index(stop)].startswith(streamed)
    assert streamed == whole[: whole.index(stop)]


async def test_a_stop_token_id_is_named(service: RealService) -> None:
    ids = list((await generate(service, ignore_eos=True)).outputs[0].token_ids)
    output = (await generate(service, stop_token_ids=[ids[4]], ignore_eos=True)).outputs[0]
    assert output.stop_match.stop_token_id == ids[4]
    assert list(output.token_ids) == ids[: ids.index(ids[4]) + 1]


async def test_min_tokens_goes_past_an_end(service: RealService) -> None:
    ids = list((await generate(service, ignore_eos=True)).outputs[0].token_ids)
    output = (await generate(service, stop_token_ids=[ids[1]], min_tokens=6, max_tokens=12)).outputs[0]
    assert len(output.token_ids) >= 6


async def test_n_greedy_outputs_are_equal_and_sampled_ones_differ(service: RealService) -> None:
    greedy = await generate(service, n=3)
    assert [output.index for output in greedy.outputs] == [0, 1, 2]
    assert len({output.text for output in greedy.outputs}) == 1
    assert greedy.usage.output_token_count == 3 * len(greedy.outputs[0].token_ids)
    sampled = await generate(service, n=4, temperature=1.5, seed=7)
    assert len({output.text for output in sampled.outputs}) > 1
    assert greedy.usage.prompt_token_count == sampled.usage.prompt_token_count


async def test_a_seed_repeats_and_another_differs(service: RealService) -> None:
    first = await text(service, temperature=1.5, seed=11)
    assert first == await text(service, temperature=1.5, seed=11)
    assert first != await text(service, temperature=1.5, seed=12)


async def test_logit_bias_allowed_ids_and_bad_words(service: RealService) -> None:
    wanted = (await ids_of(service, " blue"))[0]
    assert list((await generate(service, logit_bias={wanted: 100}, max_tokens=2)).outputs[0].token_ids) == [wanted] * 2
    allowed = [wanted, (await ids_of(service, " red"))[0]]
    ids = (await generate(service, allowed_token_ids=allowed, max_tokens=6, ignore_eos=True)).outputs[0].token_ids
    assert set(ids) <= set(allowed)
    word = (await text(service)).split()[0]
    assert word not in await text(service, bad_words=[word])


async def test_penalties_and_nucleus_change_the_text(service: RealService) -> None:
    plain = await text(service, max_tokens=40, ignore_eos=True)
    assert plain != await text(service, max_tokens=40, ignore_eos=True, frequency_penalty=2.0)
    assert plain != await text(service, max_tokens=40, ignore_eos=True, presence_penalty=2.0)
    assert plain != await text(service, max_tokens=40, ignore_eos=True, repetition_penalty=2.0)
    # One token to choose from is greedy, whatever the temperature.
    for knobs in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}):
        assert await text(service, temperature=2.0, seed=3, **knobs) == await text(service)
    assert await text(service, temperature=2.0, seed=3, top_k=-1) != await text(service)


async def test_logprobs_join_to_the_text_and_rank(service: RealService) -> None:
    output = (await generate(service, output={"logprobs": 3}, skip_special_tokens=False)).outputs[0]
    assert [entry.token_id for entry in output.logprobs] == list(output.token_ids)
    assert b"".join(entry.token_bytes for entry in output.logprobs).decode() == output.text
    for entry in output.logprobs:
        assert entry.rank == 1
        assert -9999 <= entry.logprob <= 0
        assert [top.rank for top in entry.top] == [1, 2, 3]
        assert entry.top[0].token_id == entry.token_id
        assert entry.top[0].logprob >= entry.top[1].logprob >= entry.top[2].logprob


async def test_logprobs_zero_gives_the_chosen_token_alone(service: RealService) -> None:
    output = (await generate(service, output={"logprobs": 0})).outputs[0]
    assert all(entry.HasField("logprob") and not entry.top for entry in output.logprobs)


async def test_the_bytes_of_a_split_code_point_are_exact(service: RealService) -> None:
    ids = await ids_of(service, "🦜")
    assert len(ids) > 1
    bias = dict.fromkeys(ids[:1], 100.0)
    output = (await generate(service, output={"logprobs": 0}, max_tokens=1, logit_bias=bias)).outputs[0]
    assert "🦜".encode().startswith(output.logprobs[0].token_bytes)
    assert output.logprobs[0].token_bytes


async def test_prompt_logprobs(service: RealService) -> None:
    response = await generate(service, output={"prompt_logprobs": 1})
    entries = response.prompt.logprobs
    assert [entry.token_id for entry in entries] == list(response.prompt.token_ids)
    assert not entries[0].HasField("logprob")
    assert all(entry.HasField("logprob") and entry.top[0].rank == 1 for entry in entries[1:])


async def test_truncation_keeps_the_end_of_the_prompt(service: RealService) -> None:
    whole = await generate(service)
    cut = await generate(service, truncate_prompt_tokens=2)
    assert list(cut.prompt.token_ids) == list(whole.prompt.token_ids)[-2:]
    assert cut.usage.prompt_token_count == 2


async def test_without_text_there_is_none(service: RealService) -> None:
    with_text = (await generate(service)).outputs[0]
    without = (await generate(service, output={"return_text": False})).outputs[0]
    assert without.text == ""
    assert list(without.token_ids) == list(with_text.token_ids)


async def test_usage_and_timing_add_up(service: RealService) -> None:
    response = await generate(service, n=2, temperature=1, seed=1)
    usage = response.usage
    assert usage.prompt_token_count == len(response.prompt.token_ids)
    assert usage.output_token_count == sum(len(output.token_ids) for output in response.outputs)
    assert usage.total_token_count == usage.prompt_token_count + usage.output_token_count
    first, total = (t.ToTimedelta() for t in (response.timing.first_token_duration, response.timing.total_duration))
    assert 0 < first.total_seconds() <= total.total_seconds() < 60


async def test_a_coarser_interval_sends_fewer_deltas_and_the_same_text(service: RealService) -> None:
    stub = generation_pb2_grpc.GenerationServiceStub(service.channel)
    deltas: dict[int, list[str]] = {1: [], 8: []}
    for interval, parts in deltas.items():
        knobs = sampling_pb2.SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
        output = sampling_pb2.OutputOptions(stream_interval=interval)
        call = stub.StreamGenerate(generation_pb2.GenerateRequest(text=PROMPT, sampling=knobs, output=output))
        parts.extend([event.delta.text async for event in call if event.HasField("delta")])
    assert "".join(deltas[1]) == "".join(deltas[8])
    assert len(deltas[8]) <= 6 < len(deltas[1])
    assert len(deltas[8][0]) < len(deltas[8][1]), "the first token was held"


async def test_the_prefix_cache_is_counted(service: RealService) -> None:
    prompt = "Once upon a time, " * 40
    await generate(service, prompt)
    assert (await generate(service, prompt)).usage.cached_token_count > 0
