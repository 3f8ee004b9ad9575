"""What a stream of a real detokenizer and collector looks like, at places that a script chooses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.scripted.conftest import Stage, StageMaker
from tokenwire.v1 import chat_pb2, generation_pb2, output_pb2, sampling_pb2
from tokenwire_server.backend import CallContext
from tokenwire_server.engine.collect import collect_chat, collect_generate
from tokenwire_server.errors import StatusError

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
async def stage(stages: StageMaker) -> Stage:
    return await stages()


def generate_request(
    text: str = "go", output: dict[str, Any] | None = None, **knobs: Any
) -> generation_pb2.GenerateRequest:
    return generation_pb2.GenerateRequest(
        text=text,
        sampling=sampling_pb2.SamplingParams(**knobs),
        output=sampling_pb2.OutputOptions(**(output or {})),
    )


def say(stage: Stage, text: str | list[int], **kwargs: Any) -> None:
    from tokenwire_server.engine.vllm_scripted import Script

    stage.script = Script(stage.engine.encode(text) if isinstance(text, str) else text, **kwargs)


async def deltas(stage: Stage, request: generation_pb2.GenerateRequest) -> list[generation_pb2.GenerateDelta]:
    events = stage.engine.generate(request, CallContext())
    return [event.delta async for event in events if event.HasField("delta")]


async def test_a_code_point_in_pieces_is_held_until_whole(stage: Stage) -> None:
    say(stage, "a🦜é")
    parts = [delta.text for delta in await deltas(stage, generate_request())]
    assert parts == ["a", "🦜", "é"]


async def test_a_code_point_that_stays_in_pieces_leaves_at_most_one_mark(stage: Stage) -> None:
    say(stage, list(b"ab") + list("🦜".encode()[:2]))
    text = "".join(delta.text for delta in await deltas(stage, generate_request()))
    assert text in ("ab", "ab�")


async def test_logprob_bytes_are_exact_where_texts_cannot_be(stage: Stage) -> None:
    convert = stage.engine._token_bytes
    assert [convert(i, "�") for i in "🦜".encode()] == [bytes([i]) for i in "🦜".encode()]


@pytest.mark.parametrize("steps", [(), (3,), (9,), (2, 2, 2, 2, 2)])
async def test_a_stop_text_across_tokens_never_leaks(stage: Stage, steps: tuple[int, ...]) -> None:
    say(stage, "one STO two STOP three", steps=steps)
    request = generate_request(stop=["STOP"])
    parts, finish = [], None
    async for event in stage.engine.generate(request, CallContext()):
        if event.HasField("delta"):
            parts.append(event.delta.text)
            assert "one STO two ".startswith("".join(parts))
        elif event.HasField("finish"):
            finish = event.finish
    assert "".join(parts) == "one STO two "
    assert finish is not None
    assert finish.stop_match.stop == "STOP"
    say(stage, "one STO two STOP three", steps=steps)
    kept = await collect_generate(
        stage.engine.generate(generate_request(stop=["STOP"], include_stop_str_in_output=True), CallContext())
    )
    assert kept.outputs[0].text == "one STO two STOP"


async def test_a_text_that_was_held_for_a_stop_is_flushed_at_the_end(stage: Stage) -> None:
    say(stage, "almost STO")
    response = await collect_generate(stage.engine.generate(generate_request(stop=["STOP"]), CallContext()))
    assert response.outputs[0].text == "almost STO"
    assert response.outputs[0].stop_match.eos


async def test_echo_puts_the_prompt_first_once(stage: Stage) -> None:
    say(stage, " there")
    request = generate_request("hello", {"echo": True}, n=2, temperature=0)
    response = await collect_generate(stage.engine.generate(request, CallContext()))
    assert [output.text for output in response.outputs] == ["hello there"] * 2
    say(stage, " there")
    by_ids = generation_pb2.GenerateRequest(token_ids={"ids": stage.engine.encode("hello")}, output={"echo": True})
    response = await collect_generate(stage.engine.generate(by_ids, CallContext()))
    assert response.outputs[0].text == "hello there"


async def test_greedy_n_runs_once(stage: Stage) -> None:
    stage.requests.clear()
    say(stage, "abc")
    response = await collect_generate(
        stage.engine.generate(generate_request(n=128, temperature=0, output={"return_token_ids": True}), CallContext())
    )
    assert len(stage.requests) == 1
    assert [output.index for output in response.outputs] == list(range(128))
    assert {output.text for output in response.outputs} == {"abc"}
    assert response.usage.output_token_count == 128 * 4  # with the end-of-sequence token


async def test_sampled_n_has_a_seed_for_each(stage: Stage) -> None:
    stage.requests.clear()
    say(stage, "abc")
    await collect_generate(stage.engine.generate(generate_request(n=3, temperature=1, seed=40), CallContext()))
    assert [request.sampling_params.seed for request in stage.requests] == [40, 41, 42]


async def test_deltas_merge_while_the_reader_lags_and_the_first_comes_at_once(stage: Stage) -> None:
    say(stage, "x" * 200)
    seen: list[int] = []
    events = stage.engine.generate(generate_request(output={"return_token_ids": True}), CallContext())
    async for event in events:
        if event.HasField("delta"):
            seen.append(len(event.delta.token_ids))
            for _ in range(8):
                await asyncio.sleep(0)  # the reader gives the engine's loop several turns
    assert seen[0] == 1
    assert sum(seen) == 201
    assert len(seen) < 150


async def test_the_stream_interval_reaches_the_engine(stage: Stage) -> None:
    say(stage, "x" * 64)
    parts = await deltas(stage, generate_request(output={"stream_interval": 16}))
    assert len(parts[0].text) == 1
    assert len(parts) <= 6


async def test_closing_a_stream_aborts_it_in_the_core(stage: Stage) -> None:
    say(stage, "x" * 50, step_s=0.01)
    events = stage.engine.generate(generate_request(), CallContext(request_id="closed.early"))
    await anext(events)
    await events.aclose()
    assert any(one.startswith("closed.early") for one in stage.engine.core.aborted)


async def test_cancelling_before_the_first_token_aborts_it(stage: Stage) -> None:
    say(stage, "x", ttft_s=60)
    events = stage.engine.generate(generate_request(), CallContext(request_id="cancelled.early"))
    first = asyncio.ensure_future(anext(events))
    while not stage.engine.core._runs:
        await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert any(one.startswith("cancelled.early") for one in stage.engine.core.aborted)


async def test_cancelling_while_the_request_is_being_added_leaves_nothing(stage: Stage) -> None:
    say(stage, "x", ttft_s=60)
    for turns in range(30):
        events = stage.engine.generate(generate_request(), CallContext())
        first = asyncio.ensure_future(anext(events))
        for _ in range(turns):
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
    assert stage.engine._client.output_processor.get_num_unfinished_requests() == 0
    assert not stage.engine.core._runs


async def test_a_core_that_dies_is_unavailable_and_seen(stages: StageMaker) -> None:
    stage = await stages(("<dead>",))
    say(stage, "x" * 9, dies_after=3)
    got = 0
    with pytest.raises(StatusError) as caught:
        async for event in stage.engine.generate(generate_request(), CallContext()):
            got += event.HasField("delta")
    assert caught.value.reason == "ENGINE_DEAD"
    assert 1 <= got <= 3
    assert stage.engine.errored


async def test_text_is_not_made_where_none_is_asked(stage: Stage) -> None:
    say(stage, "abc")
    request = generate_request(output={"return_text": False, "return_token_ids": True})
    parts = await deltas(stage, request)
    assert not any(delta.text for delta in parts)
    assert [i for delta in parts for i in delta.token_ids][:3] == list(b"abc")
    assert stage.requests[-1].sampling_params.detokenize is False


def chat_request(**kwargs: Any) -> chat_pb2.ChatRequest:
    message = chat_pb2.ChatMessage(role=chat_pb2.ROLE_USER, content=[chat_pb2.ContentPart(text="q")])
    return chat_pb2.ChatRequest(messages=kwargs.pop("messages", [message]), **kwargs)


TOOL = chat_pb2.Tool(function=chat_pb2.FunctionTool(name="f", parameters='{"type":"object","properties":{}}'))
OTHER = chat_pb2.Tool(function=chat_pb2.FunctionTool(name="g"))


async def rendered(stage: Stage, request: chat_pb2.ChatRequest) -> str:
    say(stage, "ok")
    await collect_chat(stage.engine.chat(request, CallContext()))
    ids = stage.requests[-1].prompt_token_ids
    return str(stage.engine._engine.get_tokenizer().decode(ids))


async def test_the_template_sees_history_tools_and_roles(stage: Stage) -> None:
    history = [
        {"role": "ROLE_DEVELOPER", "content": [{"text": "be brief"}]},
        {"role": "ROLE_USER", "content": [{"text": "one "}, {"text": "two"}]},
        {"role": "ROLE_ASSISTANT", "tool_calls": [{"id": "c1", "name": "f", "arguments": '{"a": 1}'}]},
        {"role": "ROLE_TOOL", "tool_call_id": "c1", "content": [{"text": "42"}]},
    ]
    request = chat_request(messages=history, tools=[TOOL], tool_choice={"mode": "MODE_NONE"})
    text = await rendered(stage, request)
    assert "be brief" in text
    assert "one" in text
    assert "two" in text
    assert '<|call|>f{"a": 1}' in text
    assert "<|tool|>42" in text
    assert "<|tools|>" not in text
    assert text.endswith("<|assistant|>")


async def test_the_last_message_is_continued(stage: Stage) -> None:
    history = [
        {"role": "ROLE_USER", "content": [{"text": "q"}]},
        {"role": "ROLE_ASSISTANT", "content": [{"text": "The answer is"}]},
    ]
    text = await rendered(stage, chat_request(messages=history, template={"continue_final_message": True}))
    assert text.endswith("The answer is")


async def test_one_call_where_only_one_is_allowed(stages: StageMaker) -> None:
    stage = await stages(("<tool_call>", "</tool_call>"), tool_call_parser="hermes")
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    for stream in (True, False):
        say(stage, f"{call}\n{call}")
        request = chat_request(tools=[TOOL], parallel_tool_calls=False)
        response = await collect_chat(stage.engine.chat(request, CallContext(), stream=stream))
        assert len(response.choices[0].tool_calls) == 1


async def test_length_goes_ahead_of_tool_calls(stages: StageMaker) -> None:
    stage = await stages(("<tool_call>", "</tool_call>"), tool_call_parser="hermes")
    say(stage, '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call> and more and more')
    request = chat_request(tools=[TOOL], sampling={"max_tokens": 50})
    response = await collect_chat(stage.engine.chat(request, CallContext()))
    assert response.choices[0].finish_reason == output_pb2.FINISH_REASON_LENGTH


async def test_hidden_reasoning_is_counted_and_does_not_come_back(stages: StageMaker) -> None:
    stage = await stages(("<think>", "</think>"), reasoning_parser="qwen3")
    for stream in (True, False):
        say(stage, "<think>secret</think>shown")
        request = chat_request(reasoning={"include": False}, output={"return_token_ids": True})
        response = await collect_chat(stage.engine.chat(request, CallContext(), stream=stream))
        (choice,) = response.choices
        assert (choice.reasoning, choice.content, list(choice.token_ids)) == ("", "shown", [])
        assert response.usage.reasoning_token_count >= len("secret")


@pytest.mark.parametrize(
    ("request_", "field", "says"),
    [
        (chat_request(tools=[TOOL]), "tools", "engine_kwargs.tool_call_parser"),
        (chat_request(tools=[TOOL], tool_choice={"mode": "MODE_AUTO"}), "tool_choice", "tool_call_parser"),
        (chat_request(reasoning={"max_tokens": 5}), "reasoning.max_tokens", "engine_kwargs.reasoning_parser"),
    ],
)
async def test_what_needs_a_parser_names_its_key(
    stage: Stage, request_: chat_pb2.ChatRequest, field: str, says: str
) -> None:
    with pytest.raises(StatusError) as caught:
        await collect_chat(stage.engine.chat(request_, CallContext()))
    assert caught.value.reason == "FEATURE_UNSUPPORTED"
    assert caught.value.status.message.startswith(f"{field}:")
    assert says in caught.value.status.message


@pytest.mark.parametrize("steps", [(), (200,), (3, 1, 4, 1, 5, 9, 2, 6)])
@pytest.mark.parametrize("stream", [True, False])
async def test_forced_calls_work_without_a_parser(stage: Stage, stream: bool, steps: tuple[int, ...]) -> None:
    say(stage, '[{"name": "f", "parameters": {"a": 1}}, {"name": "g", "parameters": {}}]', steps=steps)
    request = chat_request(tools=[TOOL, OTHER], tool_choice={"mode": "MODE_REQUIRED"})
    response = await collect_chat(stage.engine.chat(request, CallContext(), stream=stream))
    (choice,) = response.choices
    assert [(call.name, call.arguments) for call in choice.tool_calls] == [("f", '{"a": 1}'), ("g", "{}")]
    assert choice.finish_reason == output_pb2.FINISH_REASON_TOOL_CALLS
    assert choice.content == ""
    assert all(call.id.startswith("call_") for call in choice.tool_calls)
    assert stage.requests[-1].sampling_params.structured_outputs.json is not None

    say(stage, '{"a": 1}', steps=steps)
    request = chat_request(tools=[TOOL, OTHER], tool_choice={"function": "f"})
    response = await collect_chat(stage.engine.chat(request, CallContext(), stream=stream))
    assert [(call.name, call.arguments) for call in response.choices[0].tool_calls] == [("f", '{"a": 1}')]


async def test_a_reasoning_budget_and_the_switches_reach_vllm(stages: StageMaker) -> None:
    stage = await stages(("<think>", "</think>"), reasoning_parser="qwen3")
    say(stage, "<think>a</think>b")
    request = chat_request(reasoning={"max_tokens": 5, "effort": "EFFORT_LOW", "enabled": True})
    response = await collect_chat(stage.engine.chat(request, CallContext()))
    assert (response.choices[0].reasoning, response.choices[0].content) == ("a", "b")
    assert stage.requests[-1].sampling_params.thinking_token_budget == 5


async def test_priority_and_cache_salt_reach_vllm(stage: Stage) -> None:
    say(stage, "a")
    request = generate_request()
    request.priority, request.cache_salt = 7, "tenant"
    await collect_generate(stage.engine.generate(request, CallContext()))
    assert stage.requests[-1].priority == 7
    assert stage.requests[-1].cache_salt == "tenant"
