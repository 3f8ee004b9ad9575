from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.rest.fake_backend import FakeBackend
from tests.rest.sse import check_envelope

CHAT: list[dict[str, Any]] = [{"role": "system", "content": "a bb"}, {"role": "user", "content": "ccc"}]


async def test_prompt(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    reply = (await http.post("/tokenize", json={"model": "org/tiny", "prompt": "a bb"})).json()
    assert reply == {"count": 2, "max_model_len": 4096, "tokens": [1, 2], "token_strs": None}
    body = {"prompt": "a bb", "return_token_strs": True, "add_special_tokens": False}
    assert (await http.post("/tokenize", json=body)).json()["token_strs"] == ["a", "bb"]
    assert backend.requests[1].add_special_tokens is False
    assert not backend.requests[0].HasField("add_special_tokens")


async def test_messages(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    body = {"messages": CHAT, "add_generation_prompt": False, "tools": [tool], "chat_template_kwargs": {"x": 1}}
    reply = (await http.post("/tokenize", json=body)).json()
    assert (reply["tokens"], reply["token_strs"]) == ([1, 2, 3], None)
    request = backend.requests[0]
    assert request.template.HasField("add_generation_prompt")
    assert (request.template.add_generation_prompt, request.template.kwargs["x"]) == (False, 1)
    assert request.tools[0].function.name == "f"
    strings = (await http.post("/tokenize", json={"messages": CHAT, "return_token_strs": True})).json()
    assert strings["token_strs"] == ["a", "bb", "ccc"]


async def test_detokenize(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    assert (await http.post("/detokenize", json={"tokens": [1, 2]})).json() == {"prompt": "x xx"}


async def test_info(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    assert (await http.get("/tokenizer_info?model=org/tiny")).json() == {
        "tokenizer_class": "Words",
        "eos_token": "</s>",
        "model_max_length": 4096,
        "vocab_size": 99,
        "eos_token_ids": [],
        "chat_template": "{{ messages }}",
    }
    assert backend.requests[0].model == "org/tiny"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": 3}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": CHAT, "add_special_tokens": True}, "add_special_tokens"),
        ("/tokenize", {"messages": CHAT, "chat_template": "x"}, "chat_template"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, "tokens"),
    ],
)
async def test_mistakes(
    http: httpx.AsyncClient, backend: FakeBackend, path: str, body: dict[str, Any], param: str
) -> None:
    response = await http.post(path, json=body)
    assert (response.status_code, check_envelope(response)["param"]) == (400, param)


async def test_all_need_a_key(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.keys = frozenset({"k"})
    assert (await http.post("/tokenize", json={"prompt": "a"})).status_code == 401
    assert (await http.get("/tokenizer_info")).status_code == 401
