from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.rest.fake_backend import FakeBackend, Script
from tests.rest.sse import check_envelope, choices, events, text

from tokenwire_server.errors import StatusError
from tokenwire_server.rest.openai.completions import read_completion

BASE: dict[str, Any] = {"model": "org/tiny", "prompt": "Say"}


async def complete(http: httpx.AsyncClient, **body: Any) -> Any:
    response = await http.post("/v1/completions", json=BASE | body)
    assert response.status_code == 200, response.text
    return events(response) if body.get("stream") else response.json()


async def test_whole_reply(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    reply = await complete(http)
    assert reply == {
        "id": reply["id"],
        "object": "text_completion",
        "created": 1_700_000_000,
        "model": "org/tiny",
        "choices": [{"text": "Hello world!", "index": 0, "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 3,
            "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }
    assert reply["id"].startswith("cmpl-")


async def test_stream(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    found = await complete(http, stream=True, stream_options={"include_usage": True})
    assert found[-1] == "[DONE]"
    assert found[0]["choices"] == [{"text": "Hello", "index": 0, "logprobs": None, "finish_reason": None}]
    assert found[-3]["choices"] == [{"text": "", "index": 0, "logprobs": None, "finish_reason": "stop"}]
    assert found[-2]["choices"] == []
    assert found[-2]["usage"]["total_tokens"] == 8
    assert all(chunk["usage"] is None for chunk in found[:-2])


def test_default_max_tokens() -> None:
    assert read_completion(BASE).requests[0].sampling.max_tokens == 16
    assert read_completion(BASE | {"min_tokens": 20}).requests[0].sampling.max_tokens == 20
    assert read_completion(BASE | {"max_tokens": 3}).requests[0].sampling.max_tokens == 3


@pytest.mark.parametrize(
    ("prompt", "texts", "ids"),
    [
        ("a", ["a"], [[]]),
        (["a", "b"], ["a", "b"], [[], []]),
        ([1, 2], [""], [[1, 2]]),
        ([[1], [2, 3]], ["", ""], [[1], [2, 3]]),
    ],
)
def test_prompt_forms(prompt: Any, texts: list[str], ids: list[list[int]]) -> None:
    requests = read_completion(BASE | {"prompt": prompt}).requests
    assert [one.text for one in requests] == texts
    assert [list(one.token_ids.ids) for one in requests] == ids


@pytest.mark.parametrize("stream", [False, True])
async def test_several_prompts(http: httpx.AsyncClient, backend: FakeBackend, stream: bool) -> None:
    found = await complete(
        http, prompt=["a", [1, 2], "c"], n=2, stream=stream, stream_options={"include_usage": True} if stream else None
    )
    usage = found[-2]["usage"] if stream else found["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (15, 18)  # each prompt once, every choice
    if stream:
        assert [text(found, index, key="text") for index in range(6)] == ["Hello world!"] * 6
        assert all([one["finish_reason"] for one in choices(found, i)][-1] == "stop" for i in range(6))
        assert len({chunk["id"] for chunk in found[:-1]}) == 1
    else:
        assert [one["index"] for one in found["choices"]] == list(range(6))
    assert [one.text for one in backend.requests] == ["a", "", "c"]
    assert len({call.request_id for call in backend.calls}) == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_one_bad_prompt_refuses_all(http: httpx.AsyncClient, backend: FakeBackend, stream: bool) -> None:
    backend.script = Script(raises=StatusError.field("token_ids.ids[0]", "must be below 10", "OUT_OF_VOCABULARY"))
    response = await http.post("/v1/completions", json=BASE | {"prompt": [[1], [99]], "stream": stream})
    assert response.status_code == 400
    assert check_envelope(response)["param"] == "prompt"


async def test_a_failure_in_mid_stream_ends_all_prompts(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.script = Script(raises=RuntimeError("secret"), raise_after=1)
    found = await complete(http, prompt=["a", "b"], stream=True)
    assert found[-1]["error"]["code"] == "internal_error"


async def test_logprobs(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    expected = {
        "text_offset": [3, 8, 14],
        "token_logprobs": [-0.5] * 3,
        "tokens": ["Hello", " world", "!"],
        "top_logprobs": [{"t0": -1.0, one: -0.5} for one in ("Hello", " world", "!")],
    }
    assert (await complete(http, logprobs=1))["choices"][0]["logprobs"] == expected
    pieces = [one["logprobs"] for one in choices(await complete(http, logprobs=1, stream=True)) if one["logprobs"]]
    assert {key: [item for piece in pieces for item in piece[key]] for key in expected} == expected


@pytest.mark.parametrize("stream", [False, True])
async def test_echo_with_logprobs(http: httpx.AsyncClient, backend: FakeBackend, stream: bool) -> None:
    backend.script = Script(tokens=("!",))
    found = await complete(http, prompt=[0, 1], echo=True, logprobs=1, stream=stream)
    choice = choices(found)[0] if stream else found["choices"][0]
    assert choice["text"] == "Say it!"
    assert choice["logprobs"]["tokens"] == ["Say", " it", "!"]
    assert choice["logprobs"]["token_logprobs"] == [None, -1.0, -0.5]
    assert choice["logprobs"]["text_offset"] == [0, 3, 6]
    assert choice["logprobs"]["top_logprobs"][0] is None
    assert backend.requests[0].output.prompt_logprobs == 1
    assert "prompt_logprobs" not in choice


async def test_token_ids(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    choice = (await complete(http, return_token_ids=True))["choices"][0]
    assert (choice["token_ids"], choice["prompt_token_ids"]) == ([100, 101, 102], [0, 1, 2, 3, 4])
    found = choices(await complete(http, return_token_ids=True, stream=True))
    assert found[0]["prompt_token_ids"] == [0, 1, 2, 3, 4]
    assert [one["token_ids"] for one in found[:-1]] == [[100], [101], [102]]


async def test_continuous_usage(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    found = await complete(http, stream=True, stream_options=options)
    assert [chunk["usage"]["completion_tokens"] for chunk in found[:-1]] == [1, 2, 3, 3, 3]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"prompt": None}, "prompt", "missing_required_parameter"),
        ({"prompt": ""}, "prompt", "empty_string"),
        ({"prompt": []}, "prompt", "empty_array"),
        ({"prompt": [""]}, "prompt", "empty_string"),
        ({"prompt": [[]]}, "prompt", "empty_array"),
        ({"prompt": 5}, "prompt", "invalid_type"),
        ({"prompt": {"a": 1}}, "prompt", "invalid_type"),
        ({"prompt": [1, "a"]}, "prompt", "invalid_type"),
        ({"prompt": ["a", 1]}, "prompt", "invalid_type"),
        ({"prompt": [[1], ["a"]]}, "prompt", "invalid_type"),
        ({"prompt": [True]}, "prompt", "invalid_type"),
        ({"prompt": [1.5]}, "prompt", "invalid_type"),
        ({"prompt": [-1]}, "prompt", "integer_below_min_value"),
        ({"prompt": [2**31]}, "prompt", "integer_above_max_value"),
        ({"prompt": ["a"] * 1025}, "prompt", "array_above_max_length"),
        ({"logprobs": 6}, "logprobs", "integer_above_max_value"),
        ({"logprobs": -1}, "logprobs", "integer_below_min_value"),
        ({"logprobs": True}, "logprobs", "invalid_type"),
        ({"best_of": 3}, "best_of", "unsupported_parameter"),
        ({"best_of": 1, "n": 2}, "best_of", "integer_below_min_value"),
        ({"suffix": "x"}, "suffix", "unsupported_parameter"),
        ({"prompt_embeds": "AA=="}, "prompt_embeds", "unsupported_parameter"),
        ({"add_special_tokens": False}, "add_special_tokens", "unsupported_parameter"),
        ({"max_tokens": 0}, "max_tokens", "integer_below_min_value"),
        ({"max_tokens": 0, "echo": True}, "max_tokens", "unsupported_parameter"),
        ({"echo": "yes"}, "echo", "invalid_type"),
    ],
)
async def test_mistakes(
    http: httpx.AsyncClient, backend: FakeBackend, body: dict[str, Any], param: str, code: str, stream: bool
) -> None:
    response = await http.post("/v1/completions", json=BASE | {"stream": stream} | body)
    assert response.status_code == 400
    error = check_envelope(response)
    assert (error["param"], error["code"]) == (param, code)


async def test_recorded_message(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    response = await http.post("/v1/completions", json=BASE | {"max_tokens": -1})
    assert check_envelope(response) == {
        "message": "Invalid 'max_tokens': integer below minimum value. Expected a value >= 0, but got -1 instead.",
        "type": "invalid_request_error",
        "param": "max_tokens",
        "code": "integer_below_min_value",
    }
