"""Each parser family: streamed in every chunking, an answer is the message that the whole output is."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.scripted.conftest import Stage, StageMaker
from tests.scripted.transcripts import TOOLS, TRANSCRIPTS, Transcript
from tokenwire.v1 import chat_pb2, output_pb2
from tokenwire_server.backend import CallContext
from tokenwire_server.engine.collect import collect_chat

pytestmark = pytest.mark.filterwarnings("ignore")

SPLITS = 40
"""Random chunkings of each transcript, besides one token at a time and all at once."""


def request(transcript: Transcript) -> chat_pb2.ChatRequest:
    message = chat_pb2.ChatMessage(role=chat_pb2.ROLE_USER, content=[chat_pb2.ContentPart(text="What now?")])
    tools = [
        chat_pb2.Tool(function=chat_pb2.FunctionTool(name=name, parameters=json.dumps(schema)))
        for name, schema in TOOLS.items()
        if transcript.tool_parser
    ]
    return chat_pb2.ChatRequest(messages=[message], tools=tools)


def meaning(choice: chat_pb2.ChatChoice) -> tuple[str, str, list[tuple[str, Any]]]:
    calls = [(call.name, json.loads(call.arguments or "{}")) for call in choice.tool_calls]
    return choice.reasoning, choice.content, calls


async def answer(
    stage: Stage, transcript: Transcript, steps: tuple[int, ...], *, stream: bool
) -> tuple[chat_pb2.ChatChoice, chat_pb2.ChatResponse]:
    from tokenwire_server.engine.vllm_scripted import Script

    stage.script = Script(stage.engine.encode(transcript.text), steps)
    response = await collect_chat(stage.engine.chat(request(transcript), CallContext(), stream=stream))
    return response.choices[0], response


def chunkings(size: int, seed: str) -> list[tuple[int, ...]]:
    chooser = random.Random(seed)
    random_ones = [tuple(chooser.choice((1, 1, 2, 3, 5, 8, 21)) for _ in range(size)) for _ in range(SPLITS)]
    return [(), (size,), *random_ones]


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda t: t.name)
async def test_every_chunking_means_the_same(stages: StageMaker, transcript: Transcript) -> None:
    parsers = {"tool_call_parser": transcript.tool_parser, "reasoning_parser": transcript.reasoning_parser}
    stage = await stages(transcript.special, **{name: parser for name, parser in parsers.items() if parser})
    expected = (transcript.reasoning, transcript.content, list(transcript.calls))
    whole, response = await answer(stage, transcript, (), stream=False)
    assert meaning(whole) == expected, "parsed at once"
    ended = output_pb2.FINISH_REASON_TOOL_CALLS if transcript.calls else output_pb2.FINISH_REASON_STOP
    assert whole.finish_reason == ended
    if transcript.reasoning:
        assert 0 < response.usage.reasoning_token_count < response.usage.output_token_count
    for steps in chunkings(len(stage.engine.encode(transcript.text)), transcript.name):
        streamed, _ = await answer(stage, transcript, steps, stream=True)
        assert meaning(streamed) == expected, f"streamed in steps of {steps}"
        assert streamed.finish_reason == ended
        ids = [call.id for call in streamed.tool_calls]
        assert all(ids)
        assert len(set(ids)) == len(ids)
