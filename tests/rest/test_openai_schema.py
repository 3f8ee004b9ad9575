"""Bodies, chunks, events and errors hold to OpenAI's published description."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.rest.fake_backend import FakeBackend, Script

from tokenwire.v1 import output_pb2
from tokenwire_server.errors import StatusError

jsonschema = pytest.importorskip("jsonschema")

FILE = Path(__file__).with_name("data") / "openai_schemas.json"
MODEL = {"model": "org/tiny"}
CHAT: dict[str, Any] = MODEL | {"messages": [{"role": "user", "content": "hi"}]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
FLAT: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}
SCRIPTS = {
    "text": Script(),
    "reasoning": Script(reasoning="hm"),
    "tools": Script(tokens=("a",), tool_calls=(("f", '{"x":1}'), ("f", "{}")), finish=3),
    "only tools": Script(tokens=(), tool_calls=(("f", "{}"),), finish=3),
    "cut": Script(finish=output_pb2.FINISH_REASON_LENGTH),
    "stopped": Script(stop_match=output_pb2.StopMatch(stop="x")),
    "floor": Script(logprob=float("-inf")),
}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "usage": {"stream_options": {"include_usage": True}},
    "continuous": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
    "several": {"n": 2, "return_token_ids": True},
    "tier": {"service_tier": "auto", "tools": [TOOL]},
}


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    """The schemas with the description's own slips mended.

    It writes `nullable` as OpenAPI 3.0 did, and leaves out that the usage of a chunk is null before the last one, which
    its prose says and its servers send.
    """
    found: dict[str, Any] = _with_nulls(json.loads(FILE.read_text())["schemas"])
    usage = found["CreateChatCompletionStreamResponse"]["properties"]
    usage["usage"] = {"anyOf": [usage["usage"], {"type": "null"}]}
    legacy = found["CreateCompletionResponse"]["properties"]
    legacy["usage"] = {"anyOf": [legacy["usage"], {"type": "null"}]}
    # Its chunks of the older endpoint have no schema of their own: a chunk before the last has no finish reason.
    choice = legacy["choices"]["items"]["properties"]
    choice["finish_reason"] = {"anyOf": [choice["finish_reason"], {"type": "null"}]}
    # With echo the first token of the prompt has no probability: its servers send null.
    logprobs = next(one for one in choice["logprobs"]["anyOf"] if "properties" in one)["properties"]
    for name in ("token_logprobs", "top_logprobs"):
        logprobs[name]["items"] = {"anyOf": [logprobs[name]["items"], {"type": "null"}]}
    return found


def _with_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_nulls(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: _with_nulls(one) for key, one in value.items() if key != "nullable"}
    return {"anyOf": [found, {"type": "null"}]} if value.get("nullable") is True else found


def hold(schemas: dict[str, Any], name: str, *values: Any) -> None:
    book = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}
    validator = jsonschema.Draft202012Validator(book)
    for value in values:
        for error in validator.iter_errors(value):
            pytest.fail(f"{name} at {list(error.absolute_path)}: {error.message[:300]}")


def data_of(response: httpx.Response) -> list[Any]:
    lines = [line[6:] for line in response.text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("variant", VARIANTS)
async def test_chat(
    http: httpx.AsyncClient, backend: FakeBackend, schemas: dict[str, Any], script: str, variant: str
) -> None:
    backend.script = copy.copy(SCRIPTS[script])
    body = CHAT | VARIANTS[variant]
    if "stream_options" not in body:
        hold(schemas, "CreateChatCompletionResponse", (await http.post("/v1/chat/completions", json=body)).json())
    chunks = data_of(await http.post("/v1/chat/completions", json=body | {"stream": True}))
    assert chunks
    hold(schemas, "CreateChatCompletionStreamResponse", *chunks)


@pytest.mark.parametrize("extra", [{}, {"logprobs": 2}, {"echo": True, "logprobs": 1}, {"n": 2, "prompt": ["a", "b"]}])
async def test_completions(
    http: httpx.AsyncClient, backend: FakeBackend, schemas: dict[str, Any], extra: dict[str, Any]
) -> None:
    body = MODEL | {"prompt": "a"} | extra
    reply = (await http.post("/v1/completions", json=body)).json()
    streamed = await http.post(
        "/v1/completions", json=body | {"stream": True, "stream_options": {"include_usage": True}}
    )
    hold(schemas, "CreateCompletionResponse", reply, *data_of(streamed))


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
        {"tools": [FLAT], "tool_choice": {"type": "function", "name": "f"}, "instructions": "i"},
        {"text": {"format": {"type": "json_object"}}, "metadata": {"a": "b"}, "reasoning": {"effort": "low"}},
    ],
)
async def test_responses(
    http: httpx.AsyncClient, backend: FakeBackend, schemas: dict[str, Any], script: str, extra: dict[str, Any]
) -> None:
    backend.script = copy.copy(SCRIPTS[script])
    body = MODEL | {"input": "hi"} | extra
    hold(schemas, "Response", (await http.post("/v1/responses", json=body)).json())
    for event in data_of(await http.post("/v1/responses", json=body | {"stream": True})):
        hold(schemas, _event_schema(event["type"]), event)


def _event_schema(kind: str) -> str:
    words = [word.title() for word in re.split(r"[._]", kind.removeprefix("response."))]
    if words[0] == "Output" and words[1] == "Text":
        words = words[1:]
    return f"Response{''.join(words)}Event"


async def test_the_rest(http: httpx.AsyncClient, backend: FakeBackend, schemas: dict[str, Any]) -> None:
    hold(
        schemas,
        "CreateEmbeddingResponse",
        (await http.post("/v1/embeddings", json={"model": "mini", "input": "a"})).json(),
    )
    hold(schemas, "ListModelsResponse", (await http.get("/v1/models")).json())
    hold(schemas, "Model", (await http.get("/v1/models/org/tiny:poet")).json())
    for path in ("/nothing", "/v1/chat/completions", "/v1/models/nope"):
        hold(schemas, "ErrorResponse", (await http.get(path)).json())
    backend.script = Script(raises=StatusError.of("ENGINE_DEAD", "No."), raise_after=1)
    hold(schemas, "ErrorResponse", data_of(await http.post("/v1/chat/completions", json=CHAT | {"stream": True}))[-1])
    failed = data_of(await http.post("/v1/responses", json=MODEL | {"input": "hi", "stream": True}))[-1]
    hold(schemas, "ResponseErrorEvent", failed)
