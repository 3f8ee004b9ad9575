"""What arguments become, and which are refused by name."""

from __future__ import annotations

import pytest

from tokenwire import _arguments as arguments
from tokenwire._messages import chat_messages
from tokenwire._requests import chat_request, embed_request, generate_request, plain_request, render_request
from tokenwire.v1 import chat_pb2, embedding_pb2, generation_pb2, sampling_pb2, tokenization_pb2


def fields(message: type) -> set[str]:
    return set(message.DESCRIPTOR.fields_by_name)


def test_the_arguments_are_the_fields_of_the_contract():
    nested = fields(sampling_pb2.SamplingParams) | fields(sampling_pb2.OutputOptions)
    nested |= fields(sampling_pb2.StructuredOutput)
    holders = {"sampling", "output"}
    chat = fields(chat_pb2.ChatRequest) - holders - {"messages"} | nested
    assert set(arguments.ChatArguments.__annotations__) == chat
    generate = fields(generation_pb2.GenerateRequest) - holders - {"text", "token_ids"} | nested
    assert set(arguments.GenerateArguments.__annotations__) == generate
    assert set(arguments.EmbedArguments.__annotations__) == fields(embedding_pb2.EmbedRequest) - {"inputs"}
    render = fields(tokenization_pb2.RenderChatRequest) - {"messages"} | {"timeout"}
    assert set(arguments.RenderArguments.__annotations__) == render


def test_every_sampling_argument_lands():
    given = {
        "max_tokens": 1, "min_tokens": 1, "temperature": 0.5, "top_p": 0.5, "top_k": 3, "min_p": 0.1,
        "presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.1, "seed": 7, "n": 2,
        "stop": ["a", "b"], "stop_token_ids": [1], "include_stop_str_in_output": True, "ignore_eos": True,
        "bad_words": ["c"], "allowed_token_ids": range(3), "logit_bias": {5: -1.5}, "truncate_prompt_tokens": 9,
        "skip_special_tokens": False, "spaces_between_special_tokens": False,
    }  # fmt: skip
    expected = sampling_pb2.SamplingParams(**{**given, "allowed_token_ids": [0, 1, 2]})
    assert chat_request("x", given).sampling == expected
    assert generate_request("x", given).sampling == expected
    assert set(given) == fields(sampling_pb2.SamplingParams)


def test_none_leaves_a_field_unset():
    request = chat_request("x", {"max_tokens": None, "stop": None, "json_object": None, "adapter": None})
    assert request == chat_pb2.ChatRequest(messages=chat_messages("x"))


def test_zero_is_set():
    sampling = chat_request("x", {"temperature": 0, "top_k": 0}).sampling
    assert sampling.HasField("temperature")
    assert sampling.HasField("top_k")


def test_messages_of_all_kinds():
    call = chat_pb2.ToolCall(id="c", name="f", arguments="{}")
    image = chat_pb2.ContentPart(image=chat_pb2.MediaPart(uri="https://example.com/a.png"))
    built = chat_messages(
        [
            chat_pb2.ChatMessage(role=chat_pb2.ROLE_SYSTEM),
            {"role": "developer", "content": ["a", image]},
            {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "r"},
            {"role": "tool", "content": "42", "tool_call_id": "c", "name": "f"},
        ]
    )
    assert [message.role for message in built] == [1, 2, 4, 5]
    assert [part.WhichOneof("part") for part in built[1].content] == ["text", "image"]
    assert built[2].tool_calls[0] == call
    assert (built[2].reasoning, built[3].tool_call_id, built[3].name) == ("r", "c", "f")


def test_tool_choice_and_messages_pass_through():
    tool = chat_pb2.Tool(function=chat_pb2.FunctionTool(name="f"))
    request = chat_request("x", {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False})
    assert request.tool_choice.mode == chat_pb2.ToolChoice.MODE_REQUIRED
    assert list(request.tools) == [tool]
    assert request.HasField("parallel_tool_calls")
    named = chat_pb2.ToolChoice(function="f")
    assert chat_request("x", {"tool_choice": named}).tool_choice == named
    reasoning = chat_pb2.ReasoningOptions(enabled=True)
    assert render_request("x", {"reasoning": reasoning}).reasoning == reasoning


def test_inputs_and_prompts_of_all_kinds():
    ids = generation_pb2.TokenIds(ids=[1, 2])
    ready = embedding_pb2.EmbedInput(text="t")
    inputs = embed_request(["a", [1, 2], ids, ready], {}).inputs
    assert [one.WhichOneof("input") for one in inputs] == ["text", "token_ids", "token_ids", "text"]
    assert generate_request(ids, {}).token_ids == ids
    assert generate_request([], {}).HasField("token_ids")


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"max_token": 5}, TypeError, "max_token: no such argument"),
        ({"max_tokens": "5"}, TypeError, "max_tokens: expected an int, got str"),
        ({"max_tokens": True}, TypeError, "max_tokens: expected an int, got bool"),
        ({"max_tokens": 1.5}, TypeError, "max_tokens: expected an int, got float"),
        ({"max_tokens": 2**31}, ValueError, "max_tokens: the value does not fit its field"),
        ({"temperature": "hot"}, TypeError, "temperature: expected a number, got str"),
        ({"ignore_eos": 1}, TypeError, "ignore_eos: expected a bool, got int"),
        ({"stop": [1]}, TypeError, r"stop\[0\]: expected a str, got int"),
        ({"stop_token_ids": "12"}, TypeError, "stop_token_ids: expected a list, got str"),
        ({"logit_bias": [1]}, TypeError, "logit_bias: expected a mapping, got list"),
        ({"logit_bias": {"a": 1}}, TypeError, "logit_bias key: expected an int, got str"),
        ({"logit_bias": {1: "a"}}, TypeError, r"logit_bias\[1\]: expected a number, got str"),
        ({"tools": ["f"]}, TypeError, r"tools\[0\]: expected a tokenwire.v1.Tool, got str"),
        ({"reasoning": {}}, TypeError, "reasoning: expected a tokenwire.v1.ReasoningOptions, got dict"),
        ({"tool_choice": "any"}, ValueError, "tool_choice: expected a ToolChoice or one of none, auto, required"),
        ({"regex": "a", "json_object": True}, ValueError, "json_object: the output can conform to one thing only"),
        ({"json_schema": {"a": {1, 2}}}, TypeError, "json_schema: the mapping holds"),
        ({"choice": "yes"}, TypeError, "choice: expected a list of texts, got str"),
        ({"model": 3}, TypeError, "model: expected a str, got int"),
        ({"cache_salt": "\ud800"}, ValueError, "cache_salt: the value does not fit its field"),
    ],
)
def test_wrong_arguments_are_named(given, error, text):
    with pytest.raises(error, match=text):
        chat_request("x", given)


@pytest.mark.parametrize(
    ("messages", "error", "text"),
    [
        (3, TypeError, "messages: expected a str or a list, got int"),
        ({"role": "user"}, TypeError, "messages: expected a str or a list, got dict"),
        (["x"], TypeError, r"messages\[0\]: expected a ChatMessage or a dict, got str"),
        ([{"role": "robot"}], ValueError, r"messages\[0\].role: expected one of system, .* got 'robot'"),
        ([{"content": "x"}], ValueError, r"messages\[0\].role: .* got None"),
        ([{"role": "user", "text": "x"}], ValueError, r"messages\[0\]: unknown key 'text'"),
        ([{"role": "user", "content": 3}], TypeError, r"messages\[0\].content: expected a str"),
        ([{"role": "user", "content": [3]}], TypeError, r"messages\[0\].content\[0\]: expected a str or a ContentPart"),
        ([{"role": "user", "name": 3}], TypeError, r"messages\[0\].name: expected a str, got int"),
        (
            [{"role": "assistant", "tool_calls": [{}]}],
            TypeError,
            r"messages\[0\].tool_calls\[0\]: expected a tokenwire",
        ),
    ],
)
def test_wrong_messages_are_named(messages, error, text):
    with pytest.raises(error, match=text):
        chat_messages(messages)


def test_wrong_prompts_and_inputs_are_named():
    with pytest.raises(TypeError, match="prompt: expected a str or a list of token ids, got int"):
        generate_request(3, {})
    with pytest.raises(TypeError, match=r"prompt\[0\]: expected an int, got str"):
        generate_request(["a"], {})
    with pytest.raises(TypeError, match=r"inputs\[1\]: expected a str or a list of token ids, got int"):
        embed_request(["a", 3], {})
    with pytest.raises(TypeError, match="text: expected a str, got int"):
        plain_request(tokenization_pb2.TokenizeRequest, text=3)
