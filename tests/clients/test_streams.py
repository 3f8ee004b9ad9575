"""The grammar of a stream, and what is made of events."""

from __future__ import annotations

import pytest

from tokenwire import errors
from tokenwire._streams import ChatAccumulator, GenerateAccumulator
from tokenwire.v1 import chat_pb2, generation_pb2, output_pb2


def event(**kwargs) -> chat_pb2.StreamChatResponse:
    return chat_pb2.StreamChatResponse(**kwargs)


def test_tool_calls_are_put_together():
    ours = ChatAccumulator()
    for index, kwargs in [
        (0, {"id": "a", "name": "f", "arguments": '{"x"'}),
        (1, {"id": "b", "name": "g"}),
        (0, {"arguments": ": 1}"}),
        (1, {"arguments": "{}"}),
    ]:
        ours.feed(event(delta={"index": 0, "tool_calls": [{"index": index, **kwargs}]}))
    assert list(ours.response().choices[0].tool_calls) == [
        chat_pb2.ToolCall(id="a", name="f", arguments='{"x": 1}'),
        chat_pb2.ToolCall(id="b", name="g", arguments="{}"),
    ]


def test_choices_are_in_the_order_of_their_index():
    ours = ChatAccumulator()
    for index in (2, 0, 1):
        ours.feed(event(delta={"index": index, "content": str(index)}))
    assert [choice.content for choice in ours.response().choices] == ["0", "1", "2"]
    assert ours.text(1) == "1"
    assert ours.text(9) == ""


def test_a_response_is_a_snapshot():
    ours = GenerateAccumulator()
    ours.feed(generation_pb2.StreamGenerateResponse(delta={"text": "a", "token_ids": [1]}))
    before = ours.response()
    ours.feed(generation_pb2.StreamGenerateResponse(delta={"text": "b", "token_ids": [2]}))
    assert (before.outputs[0].text, list(before.outputs[0].token_ids)) == ("a", [1])
    assert (ours.response().outputs[0].text, list(ours.response().outputs[0].token_ids)) == ("ab", [1, 2])


def test_usage_counts_before_the_end_and_is_the_servers_after_it():
    ours = ChatAccumulator()
    ours.feed(event(start={"prompt_token_count": 5, "cached_token_count": 4}))
    ours.feed(event(finish={"index": 0, "output_token_count": 3}))
    assert ours.response().usage == output_pb2.Usage(
        prompt_token_count=5, output_token_count=3, total_token_count=8, cached_token_count=4
    )
    end = output_pb2.StreamEnd(usage={"prompt_token_count": 5, "reasoning_token_count": 2})
    ours.feed(event(end=end))
    assert ours.response().usage == end.usage
    ours.check_complete()


def test_an_event_that_is_not_known_is_left_aside():
    ours = ChatAccumulator()
    assert ours.feed(event()) is None
    assert ours.begun


def test_a_missing_finish_is_incomplete():
    ours = ChatAccumulator()
    ours.feed(event(delta={"index": 0}))
    ours.feed(event(delta={"index": 1}))
    ours.feed(event(finish={"index": 0}))
    ours.feed(event(end={}))
    with pytest.raises(errors.IncompleteStreamError, match="without the finish of output 1"):
        ours.check_complete()


async def test_an_ok_without_the_end_is_an_error(server, flavour):
    server.reply("one two", end=False)
    stream = flavour.client.stream_chat("x")
    deltas: list[object] = []
    with pytest.raises(errors.IncompleteStreamError, match="without its end event"):
        await flavour.read(stream, deltas)
    assert len(deltas) == 2
    assert stream.text == "one two"
    assert len(server.calls) == 1


async def test_a_long_stream(server, flavour):
    text = "word " * 2000
    server.reply(text)
    stream = flavour.client.stream_generate("x")
    deltas: list[object] = []
    await flavour.read(stream, deltas)
    assert len(deltas) == 2000
    assert stream.text == text
