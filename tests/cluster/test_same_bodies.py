"""The same request has the same bytes for an answer in process, over a deployment handle, and over a channel."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from typing import Any

import httpx
import pytest

from tests.cluster.conftest import BIN, serving

pytestmark = [pytest.mark.ray, pytest.mark.timeout(180)]

CONFIG = """
llm_configs:
  - model_loading_config: {model_id: scripted}
    llm_engine: scripted
    engine_kwargs: {step_ms: 30, tokens_per_step: 8, tool_call_parser: hermes, reasoning_parser: qwen3}
    deployment_config: {ray_actor_options: {num_cpus: 0.5}}
ingress_deployment_config: {ray_actor_options: {num_cpus: 0.25}}
admin: true
cors_origins: ["https://allowed.example"]
"""

CALL = '<think>\nTwo.\n</think>Sure. <tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "é🦜"}}\n</tool_call>'
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
    },
}


def chat(text: str = "<think>Hm.</think>Grüße 🦜, \u2028 and so on", **more: Any) -> dict[str, Any]:
    return {"model": "scripted", "messages": [{"role": "user", "content": text}], **more}


USAGE = {"stream": True, "stream_options": {"include_usage": True}}
NATIVE = {"model": "scripted", "messages": [{"role": "ROLE_USER", "content": [{"text": "<think>Hm.</think>a b c"}]}]}
REQUESTS: dict[str, tuple[str, str, Any]] = {
    "chat": ("POST", "/v1/chat/completions", chat()),
    "chat stream": ("POST", "/v1/chat/completions", chat(**USAGE)),
    "chat of two": ("POST", "/v1/chat/completions", chat(n=2, return_token_ids=True)),
    "chat cut": ("POST", "/v1/chat/completions", chat(max_tokens=9, stop=["so"])),
    "tools": ("POST", "/v1/chat/completions", chat(CALL, tools=[TOOL])),
    "tools stream": ("POST", "/v1/chat/completions", chat(CALL, tools=[TOOL], **USAGE)),
    "bad field": ("POST", "/v1/chat/completions", chat(temperature=7)),
    "bad field stream": ("POST", "/v1/chat/completions", chat(temperature=7, stream=True)),
    "bad schema": (
        "POST",
        "/v1/chat/completions",
        chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "objekt"}}}),
    ),
    "too long": ("POST", "/v1/chat/completions", chat("x" * 9000)),
    "unknown model": ("POST", "/v1/chat/completions", chat() | {"model": "nope"}),
    "completions": ("POST", "/v1/completions", {"model": "scripted", "prompt": ["a b", "c"], "echo": True}),
    "completions stream": ("POST", "/v1/completions", {"model": "scripted", "prompt": "a b c", **USAGE}),
    "embeddings": ("POST", "/v1/embeddings", {"model": "scripted", "input": "a"}),
    "responses": ("POST", "/v1/responses", {"model": "scripted", "input": "<think>Hm.</think>hello"}),
    "responses stream": (
        "POST",
        "/v1/responses",
        {"model": "scripted", "input": CALL, "stream": True, "tools": [{"type": "function", **TOOL["function"]}]},  # type: ignore[dict-item]
    ),
    "messages": ("POST", "/v1/messages", chat(max_tokens=99)),
    "messages stream": ("POST", "/v1/messages", chat(max_tokens=99, stream=True)),
    "tokenize": ("POST", "/tokenize", {"model": "scripted", "prompt": "hé", "return_token_strs": True}),
    "models": ("GET", "/v1/models", None),
    "model": ("GET", "/v1/models/scripted", None),
    "no model": ("GET", "/v1/models/nope", None),
    "native": ("POST", "/tokenwire/v1/chat", NATIVE),
    "native stream": ("POST", "/tokenwire/v1/streamChat", NATIVE),
    "native events": ("POST", "/tokenwire/v1/streamChat?alt=sse", NATIVE),
    "preflight": ("OPTIONS", "/v1/chat/completions", None),
    "native fault": ("POST", "/tokenwire/v1/chat", {"model": "scripted", "messages": []}),
}

PREFLIGHT = {"preflight": {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}}


def steady(text: str) -> str:
    """A body without ids and times."""
    text = re.sub(r'"(created|created_at|completed_at)":[\d.]+', r'"\1":0', text)
    text = re.sub(r'"createTime":"[^"]*"', '"createTime":""', text)
    text = re.sub(r'"timing":\{[^}]*\}', '"timing":{}', text)
    return re.sub(r"\b(call|resp|msg|rs|fc|toolu)_[0-9a-zA-Z]+", r"\1_", text)


Answer = tuple[int, str | None, str | None, str]


def answers(base_url: str) -> dict[str, Answer]:
    """Status, content type, allowed origin and body of each request."""
    found = {}
    with httpx.Client(base_url=base_url, timeout=30, trust_env=False) as client:
        for name, (method, path, body) in REQUESTS.items():
            headers = {"x-request-id": "same", "origin": "https://allowed.example", **PREFLIGHT.get(name, {})}
            reply = client.request(method, path, json=body, headers=headers)
            kind, allowed = map(reply.headers.get, ("content-type", "access-control-allow-origin"))
            found[name] = (reply.status_code, kind, allowed, steady(reply.text))
    return found


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Answer]]:
    """Answers of the shim in process, over a channel to the same service, and over a deployment handle."""
    found = {}
    with serving(CONFIG, tmp_path_factory.mktemp("direct")) as cluster:
        found["in process"] = answers(cluster.base_url)
        command = [BIN / "tokenwire", "rest", "--target", cluster.target, "--http-port", "0"]
        command += ["--cors-origin", "https://allowed.example"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shim:
            assert shim.stdout is not None
            url = re.search(r"http://\S+?(?=/v1)", shim.stdout.readline())
            assert url is not None
            found["channel"] = answers(url[0])
            shim.send_signal(signal.SIGTERM)
        assert shim.returncode == 0
    with serving("topology: routed\n" + CONFIG, tmp_path_factory.mktemp("routed")) as cluster:
        found["handle"] = answers(cluster.base_url)
    return found


@pytest.mark.parametrize("path", ["channel", "handle"])
@pytest.mark.parametrize("name", REQUESTS)
def test_the_same_bytes(paths: dict[str, dict[str, Answer]], name: str, path: str) -> None:
    assert paths[path][name] == paths["in process"][name]


def test_the_requests_are_answered(paths: dict[str, dict[str, Answer]]) -> None:
    statuses = {name: status for name, (status, *_) in paths["in process"].items()}
    assert {allowed for _, _, allowed, _ in paths["in process"].values()} == {"https://allowed.example"}
    refused = ("bad field", "bad field stream", "bad schema", "too long", "embeddings", "native fault")
    other = {"preflight": 204, "unknown model": 404, "no model": 404, **dict.fromkeys(refused, 400)}
    assert statuses == {name: other.get(name, 200) for name in REQUESTS}
    call = json.loads(paths["in process"]["tools"][3])["choices"][0]["message"]
    assert (call["content"], call["reasoning"]) == ("Sure. ", "\nTwo.\n")
    assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"a": 1, "b": "é🦜"}
