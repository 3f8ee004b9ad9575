"""Several models behind one address, by every door; what happens when one of them dies or sleeps."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import httpx
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status.rpc_status import aio as rpc_status

import tokenwire
from tests.cluster.conftest import BIN, Cluster, serving
from tokenwire.admin.v1 import admin_pb2, admin_pb2_grpc
from tokenwire.v1 import chat_pb2, chat_pb2_grpc, model_pb2, model_pb2_grpc
from tokenwire_server.errors import StatusError, error_details

pytestmark = [pytest.mark.ray, pytest.mark.timeout(180)]

CONFIG = """
llm_configs:
  - model_loading_config: {model_id: small}
    llm_engine: echo
    engine_kwargs: {step_ms: 5}
    deployment_config: {num_replicas: 2, ray_actor_options: {num_cpus: 0.25}}
  - model_loading_config: {model_id: org/large}
    llm_engine: echo
    engine_kwargs: {step_ms: 5}
    deployment_config: {ray_actor_options: {num_cpus: 0.25}}
ingress_deployment_config: {ray_actor_options: {num_cpus: 0.25}}
admin: true
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with serving(CONFIG, tmp_path_factory.mktemp("routed")) as running:
        yield running


@pytest.fixture(scope="module")
async def channel(cluster: Cluster) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(cluster.target) as made:
        yield made


def request(model: str, text: str = "a b c", **kwargs: Any) -> chat_pb2.ChatRequest:
    message = chat_pb2.ChatMessage(role=chat_pb2.ROLE_USER, content=[chat_pb2.ContentPart(text=text)])
    return chat_pb2.ChatRequest(model=model, messages=[message], **kwargs)


async def replicas(channel: grpc.aio.Channel) -> list[admin_pb2.ReplicaLoad]:
    stub = admin_pb2_grpc.AdminServiceStub(channel)
    return list((await stub.GetLoad(admin_pb2.GetLoadRequest())).replicas)


@pytest.mark.parametrize("model", ["small", "org/large"])
async def test_the_model_picks_the_deployment(channel: grpc.aio.Channel, model: str) -> None:
    stub = chat_pb2_grpc.ChatServiceStub(channel)
    whole = await stub.Chat(request(model))
    assert (whole.model, whole.choices[0].content) == (model, "a b c")
    events = [event async for event in stub.StreamChat(request(model))]
    assert [e.WhichOneof("event") for e in events] == ["start", "delta", "delta", "delta", "finish", "end"]
    assert events[0].start.model == model


async def test_rest_and_grpcurl_reach_both(cluster: Cluster) -> None:
    async with httpx.AsyncClient(base_url=cluster.base_url, timeout=30) as http:
        assert [m["id"] for m in (await http.get("/v1/models")).json()["data"]] == ["org/large", "small"]
        for model in ("small", "org/large"):
            body = {"model": model, "messages": [{"role": "user", "content": "x y"}]}
            reply = (await http.post("/v1/chat/completions", json=body)).json()
            assert (reply["model"], reply["choices"][0]["message"]["content"]) == (model, "x y")
            lines = (await http.post("/v1/chat/completions", json={**body, "stream": True})).text.split("\n\n")
            assert lines[-2] == "data: [DONE]"
        missing = await http.post("/v1/chat/completions", json={**body, "model": "nope"})
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
    asked = json.dumps({"model": "org/large", "messages": [{"role": "ROLE_USER", "content": [{"text": "x"}]}]})
    command = [BIN / "grpcurl", "-plaintext", "-d", asked, cluster.target, "tokenwire.v1.ChatService/Chat"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    assert '"content": "x"' in done.stdout


async def test_models_are_listed_with_their_facts(channel: grpc.aio.Channel) -> None:
    models = (await model_pb2_grpc.ModelServiceStub(channel).ListModels(model_pb2.ListModelsRequest())).models
    assert [(m.id, m.max_model_len) for m in models] == [("org/large", 4096), ("small", 4096)]


@pytest.mark.parametrize(
    ("asked", "reason", "says"),
    [
        (request("nope"), "MODEL_NOT_FOUND", "org/large, small"),
        (request(""), "INVALID_FIELD", "org/large, small"),
        (request("small", sampling={"max_tokens": -1}), "INVALID_FIELD", "max_tokens"),
        (request("small", "w " * 5000), "CONTEXT_LENGTH_EXCEEDED", "4096"),
        (request("small", "[[fault:QUEUE_FULL:0]] x"), "QUEUE_FULL", "QUEUE_FULL"),
        (request("small", "[[fault:crash:0]] x"), "INTERNAL", "request id"),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_status_survives_the_hop(
    channel: grpc.aio.Channel, asked: chat_pb2.ChatRequest, reason: str, says: str, streamed: bool
) -> None:
    stub = chat_pb2_grpc.ChatServiceStub(channel)
    call: Any = stub.StreamChat(asked) if streamed else stub.Chat(asked)
    with pytest.raises(grpc.aio.AioRpcError):
        if streamed:
            async for _ in call:
                pass
        else:
            await call
    status = await rpc_status.from_call(call)
    assert status is not None
    assert StatusError(status).reason == reason
    assert says in status.message
    assert error_details(status, error_details_pb2.ErrorInfo) is not None


@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_the_end_of_a_call_reaches_the_engine(channel: grpc.aio.Channel, how: str) -> None:
    stub = chat_pb2_grpc.ChatServiceStub(channel)
    long = request("small", "a b", sampling={"max_tokens": 4000})
    calls = [stub.StreamChat(long, timeout=1.0 if how == "deadline" else None) for _ in range(20)]

    async def read(call: Any) -> None:
        try:
            async for _ in call:
                pass
        except (grpc.aio.AioRpcError, asyncio.CancelledError):
            pass

    tasks = [asyncio.ensure_future(read(call)) for call in calls]
    while sum(r.open_count for r in await replicas(channel)) < len(calls) and not all(t.done() for t in tasks):
        await asyncio.sleep(0.02)
    if how == "cancel":
        for call in calls:
            call.cancel()
    await asyncio.gather(*tasks)
    began = time.monotonic()
    while any(r.open_count or r.running_count for r in await replicas(channel)):
        assert time.monotonic() - began < 2
        await asyncio.sleep(0.02)


async def test_admin_names_every_replica_of_every_model(channel: grpc.aio.Channel) -> None:
    found = await replicas(channel)
    assert sorted(r.model for r in found) == ["org/large", "small", "small"]
    assert len({r.replica for r in found}) == 3
    stub = admin_pb2_grpc.AdminServiceStub(channel)
    one = await stub.GetServerInfo(admin_pb2.GetServerInfoRequest(model="org/large"))
    assert [r.model for r in one.replicas] == ["org/large"]


async def test_a_model_that_dies_leaves_the_other_answering(cluster: Cluster, channel: grpc.aio.Channel) -> None:
    stub = chat_pb2_grpc.ChatServiceStub(channel)
    health = health_pb2_grpc.HealthStub(channel)
    info = await admin_pb2_grpc.AdminServiceStub(channel).GetServerInfo(
        admin_pb2.GetServerInfoRequest(model="org/large")
    )
    (victim,) = [p for p in cluster.processes("ServeReplica") if p.pid == info.replicas[0].process_id]
    streams = [stub.StreamChat(request("org/large", "a b", sampling={"max_tokens": 2000})) for _ in range(5)]
    readers = [aiter(stream) for stream in streams]
    for reader in readers:
        assert (await anext(reader)).HasField("start")
    victim.kill()
    began = time.monotonic()
    for stream, reader in zip(streams, readers, strict=True):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in reader:
                pass
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        status = await rpc_status.from_call(stream)
        assert status is not None
        assert StatusError(status).reason == "NO_REPLICA"
    assert time.monotonic() - began < 2, "the clients knew too late"
    assert (await stub.Chat(request("small"))).choices[0].content == "a b c"
    with tokenwire.Client(cluster.target) as client:
        answer = await asyncio.to_thread(client.chat, "back?", model="org/large", timeout=60)
    assert answer.choices[0].content == "back?"
    while (await health.Check(health_pb2.HealthCheckRequest(service="org/large"))).status != 1:
        await asyncio.sleep(0.1)
