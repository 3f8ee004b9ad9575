"""Every method against the fake server, in both flavours."""

from __future__ import annotations

import pytest

import tokenwire
from tokenwire.v1 import chat_pb2, output_pb2, sampling_pb2


async def test_chat_sends_what_it_is_given_and_returns_the_response(server, flavour):
    server.reply("Because of Rayleigh scattering.")
    response = await flavour.call(
        "chat",
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why is the sky blue?"}],
        model="fake",
        max_tokens=64,
        temperature=0.2,
        stop="\n",
        logprobs=2,
        request_id="mine",
        session_id="s1",
    )
    assert isinstance(response, chat_pb2.ChatResponse)
    assert tokenwire.text(response) == "Because of Rayleigh scattering."
    assert response.request_id == "mine"
    sent = server.calls[0].request
    assert [message.role for message in sent.messages] == [chat_pb2.ROLE_SYSTEM, chat_pb2.ROLE_USER]
    assert (sent.sampling.max_tokens, sent.sampling.temperature, list(sent.sampling.stop)) == (64, 0.2, ["\n"])
    assert (sent.model, sent.output.logprobs, sent.session_id) == ("fake", 2, "s1")
    assert not sent.sampling.HasField("top_p")


@pytest.mark.parametrize(("unary", "streaming"), [("chat", "stream_chat"), ("generate", "stream_generate")])
async def test_a_stream_adds_up_to_the_unary_response(server, flavour, unary, streaming):
    call = chat_pb2.ToolCall(id="call_1", name="look_up", arguments='{"word": "sky"}')
    for _ in range(2):
        server.reply("The sky is blue.", "Grün ist die Heide.", reasoning="Hm. ", tool_calls=[call])
    arguments = {"n": 2, "logprobs": 1, "return_token_ids": True, "request_id": "same"}
    whole = await flavour.call(unary, "Tell me", **arguments)
    stream = getattr(flavour.client, streaming)("Tell me", **arguments)
    deltas: list[object] = []
    await flavour.read(stream, deltas)
    assert stream.response == whole
    assert stream.text == "The sky is blue."
    assert stream.start.request_id == "same"
    assert len(deltas) > 4


async def test_a_response_grows_with_the_stream(server, client):
    server.reply("one two three")
    stream = client.stream_chat("count")
    assert (stream.start, stream.text, len(stream.response.choices)) == (None, "", 0)
    next(stream)
    assert stream.text == "one "
    next(stream)
    assert stream.text == "one two "
    assert stream.response.choices[0].finish_reason == output_pb2.FINISH_REASON_UNSPECIFIED
    assert stream.response.usage.prompt_token_count == len("count")
    list(stream)
    assert stream.response.choices[0].finish_reason == output_pb2.FINISH_REASON_STOP
    assert stream.response.choices[0].stop_match.eos


async def test_generate_takes_text_and_token_ids(server, flavour):
    assert tokenwire.text(await flavour.call("generate", "abc")) == "abc"
    assert tokenwire.text(await flavour.call("generate", [97, 98])) == "ab"
    assert tokenwire.text(await flavour.call("generate", "x", n=2), 1) == "x"
    assert list(server.calls[1].request.token_ids.ids) == [97, 98]


async def test_embed(server, flavour):
    response = await flavour.call("embed", ["one", [116, 119, 111]], dimensions=4)
    assert [len(embedding.values) for embedding in response.embeddings] == [4, 4]
    assert response.embeddings[1].index == 1
    assert len((await flavour.call("embed", "one")).embeddings) == 1


async def test_tokenization(server, flavour):
    tokens = await flavour.call("tokenize", "ab", return_tokens=True)
    assert (list(tokens.token_ids), list(tokens.tokens)) == ([97, 98], ["a", "b"])
    assert await flavour.call("detokenize", [97, 98]) == "ab"
    rendered = await flavour.call("render_chat", "Hello", model="other")
    assert rendered.text == "user: Hello\nassistant:"
    assert (await flavour.call("tokenizer_info")).vocab_size == 256


async def test_models_follows_pages(server, flavour):
    assert [model.id for model in await flavour.call("models")] == ["fake", "other", "team/third"]
    assert [call.method for call in server.calls] == ["ListModels"] * 2
    assert (await flavour.call("model", "team/third")).id == "team/third"
    assert (await flavour.call("version")).api == "tokenwire.v1"


async def test_a_conversation_goes_on_with_message(server, client):
    server.reply("Hi.", reasoning="Greet.")
    messages = [{"role": "user", "content": "Hello"}]
    messages.append(tokenwire.message(client.chat(messages)))
    messages.append({"role": "user", "content": "Again"})
    client.chat(messages)
    turn = server.calls[1].request.messages[1]
    assert (turn.role, turn.content[0].text, turn.reasoning) == (chat_pb2.ROLE_ASSISTANT, "Hi.", "Greet.")


async def test_text_says_which_output_is_missing(server, client):
    with pytest.raises(IndexError, match="no choice 3"):
        tokenwire.text(client.chat("x"), 3)
    with pytest.raises(IndexError, match="no output 1"):
        tokenwire.text(client.generate("x"), 1)


async def test_metadata_of_every_call(server, make_flavour):
    flavour = make_flavour(api_key="secret", metadata=[("application", "llm")])
    await flavour.call("version")
    await flavour.read(flavour.client.stream_chat("x"), [])
    for call in server.calls:
        assert call.metadata["authorization"] == "Bearer secret"
        assert call.metadata["application"] == "llm"
        assert call.metadata["user-agent"].startswith(f"tokenwire-python/{tokenwire.__version__} ")
    assert "secret" not in repr(flavour.client) + repr(server.calls)


async def test_the_deadline_fills_the_timeout_of_the_request(server, make_flavour):
    flavour = make_flavour(timeout=30)
    await flavour.call("chat", "x")
    await flavour.call("generate", "x", timeout=5)
    await flavour.call("embed", "x", timeout=7.5)
    await flavour.read(flavour.client.stream_chat("x", timeout=9), [])
    seconds = [call.request.timeout.ToMilliseconds() / 1000 for call in server.calls]
    for sent, given in zip(seconds, [30, 5, 7.5, 9], strict=True):
        assert given - 2 < sent <= given


async def test_several_connections_serve_in_turn(server, make_flavour):
    flavour = make_flavour(connections=3)
    for _ in range(6):
        await flavour.call("version")
    assert len(server.calls) == 6


async def test_structured_output_reaches_the_request(server, client):
    client.chat("x", json_schema={"type": "object"})
    client.chat("x", choice=["yes", "no"])
    client.chat("x", structured_output=sampling_pb2.StructuredOutput(regex="a+"))
    forms = [call.request.structured_output for call in server.calls]
    assert [form.WhichOneof("form") for form in forms] == ["json_schema", "choice", "regex"]
    assert list(forms[1].choice.choices) == ["yes", "no"]
