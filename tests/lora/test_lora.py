"""LoRA adapters on the real model, behind Serve: the right one answers, bad ones harm nobody. `make lora` runs it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil
import pytest

from tests.cluster.conftest import Cluster, serving
from tests.lora.adapters import write_adapter, write_bad
from tokenwire.admin.v1 import admin_pb2, admin_pb2_grpc
from tokenwire.v1 import generation_pb2, generation_pb2_grpc, model_pb2, model_pb2_grpc
from tokenwire_server.embedded import provide

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

COUNT, PLACES = 20, 4
NAMES = [f"a{number:02}" for number in range(COUNT)]
PROMPT, MAX_TOKENS = "The sea is", 12

CONFIG = """
llm_configs:
  - model_loading_config: {model_id: base, model_source: "embedded:smollm2-135m-instruct"}
    engine_kwargs: {dtype: float32, enforce_eager: true, max_model_len: 1024, max_num_seqs: 32}
    lora_config: {dynamic_lora_loading_path: FOLDER, max_num_adapters_per_replica: 4}
admin: true
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("lora") / "adapters"
    for seed, name in enumerate(NAMES):
        write_adapter(made / name, 100 + seed)
    return made


@pytest.fixture(scope="module")
def bad(folder: Path) -> dict[str, str]:
    return write_bad(folder, folder.parent)


@pytest.fixture(scope="module")
def reference(folder: Path) -> dict[str, list[int]]:
    """Token ids by adapter, "" for the base model, of vLLM by itself."""
    model = provide("embedded:smollm2-135m-instruct", print)
    program = Path(__file__).with_name("offline_lora.py")
    done = subprocess.run(
        [sys.executable, program, model, folder, PROMPT, str(MAX_TOKENS), *NAMES],
        env={**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said: dict[str, list[int]] = json.loads(done.stdout.splitlines()[-1])
    assert len({tuple(ids) for ids in said.values()}) == COUNT + 1, "the adapters do not differ"
    return said


@pytest.fixture(scope="module")
def cluster(folder: Path, bad: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with serving(CONFIG.replace("FOLDER", str(folder)), tmp_path_factory.mktemp("serve")) as running:
        yield running


@pytest.fixture(scope="module")
async def channel(cluster: Cluster) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(cluster.target) as made:
        yield made


async def ask(channel: grpc.aio.Channel, adapter: str, model: str = "") -> generation_pb2.GenerateResponse:
    stub = generation_pb2_grpc.GenerationServiceStub(channel)
    request = generation_pb2.GenerateRequest(
        model=model,
        adapter=adapter,
        text=PROMPT,
        sampling={"temperature": 0, "max_tokens": MAX_TOKENS},
        output={"return_token_ids": True},
    )
    return await stub.Generate(request)


async def held(channel: grpc.aio.Channel) -> set[str]:
    """Names of the adapters that are loaded."""
    stub = admin_pb2_grpc.AdminServiceStub(channel)
    answer = await stub.ListAdapters(admin_pb2.ListAdaptersRequest())
    return {adapter.name for adapter in answer.adapters if adapter.replicas}


async def test_two_adapters_and_the_base_in_one_batch(
    channel: grpc.aio.Channel, reference: dict[str, list[int]]
) -> None:
    names = ["a00", "", "a01"] * 4
    answers = await asyncio.gather(*(ask(channel, name) for name in names))
    for name, answer in zip(names, answers, strict=True):
        assert list(answer.outputs[0].token_ids) == reference[name], name
        assert answer.model == (f"base:{name}" if name else "base")


@pytest.mark.parametrize(("model", "adapter"), [("base", "a02"), ("base:a02", ""), ("a02", ""), ("base:a02", "a02")])
async def test_an_adapter_is_chosen_in_any_of_its_ways(
    channel: grpc.aio.Channel, reference: dict[str, list[int]], model: str, adapter: str
) -> None:
    assert list((await ask(channel, adapter, model)).outputs[0].token_ids) == reference["a02"]


@pytest.mark.parametrize("adapter", ["", "a05"])
async def test_prompt_logprobs_come_with_and_without_an_adapter(channel: grpc.aio.Channel, adapter: str) -> None:
    stub = generation_pb2_grpc.GenerationServiceStub(channel)
    request = generation_pb2.GenerateRequest(
        adapter=adapter, text=PROMPT, sampling={"max_tokens": 1}, output={"prompt_logprobs": 1, "logprobs": 1}
    )
    answers = await asyncio.gather(*(stub.Generate(request) for _ in range(3)))
    assert [len(answer.prompt.logprobs) for answer in answers] == [3, 3, 3]


async def test_two_different_ones_are_refused(channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(channel, "a01", "base:a02")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_no_wrong_adapter_ever_answers_and_memory_is_flat(
    cluster: Cluster, channel: grpc.aio.Channel, reference: dict[str, list[int]]
) -> None:
    chooser = random.Random(5)
    worker = cluster.processes("VLLM::Worker")[0]
    sizes = []
    for _ in range(4):
        names = [name for name in [*NAMES, ""] for _ in range(2)]
        chooser.shuffle(names)
        limit = asyncio.Semaphore(8)

        async def one(name: str, limit: asyncio.Semaphore = limit) -> None:
            async with limit:
                assert list((await ask(channel, name)).outputs[0].token_ids) == reference[name], name

        await asyncio.gather(*map(one, names))
        sizes.append(psutil.Process(worker.pid).memory_info().rss / 2**20)
    print(f"worker's MiB after each round: {[round(size) for size in sizes]}")
    assert sizes[-1] < sizes[0] + 60
    await ask(channel, "a00")
    assert len(await held(channel)) == PLACES


async def test_they_are_listed(cluster: Cluster, channel: grpc.aio.Channel, bad: dict[str, str]) -> None:
    models = (await model_pb2_grpc.ModelServiceStub(channel).ListModels(model_pb2.ListModelsRequest())).models
    listed = {model.id: model.parent for model in models}
    assert listed["base"] == ""
    assert {f"base:{name}" for name in NAMES} <= listed.keys()
    assert all(parent == "base" for name, parent in listed.items() if name != "base")
    assert "base:linked" not in listed
    async with httpx.AsyncClient(base_url=cluster.base_url, trust_env=False) as http:
        entries = {one["id"]: one for one in (await http.get("/v1/models")).json()["data"]}
        assert entries["base:a00"]["parent"] == "base"
        one = (await http.get("/v1/models/base:a00")).json()
        assert (one["id"], one["parent"]) == ("base:a00", "base")
        assert (await http.get("/v1/models/base:nope")).status_code == 404


@pytest.mark.parametrize("stream", [False, True])
async def test_rest_names_the_adapter_in_the_reply(cluster: Cluster, stream: bool) -> None:
    body = {"model": "base:a03", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "stream": stream}
    async with httpx.AsyncClient(base_url=cluster.base_url, trust_env=False, timeout=60) as http:
        reply = await http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    chunks: list[Any] = (
        [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
        if stream
        else [reply.json()]
    )
    assert {chunk["model"] for chunk in chunks} == {"base:a03"}


async def test_bad_ones_are_refused_and_harm_nobody(
    channel: grpc.aio.Channel, reference: dict[str, list[int]], bad: dict[str, str]
) -> None:
    for name, word in bad.items():
        try:
            await ask(channel, name)
        except grpc.aio.AioRpcError as error:
            code, details = error.code(), error.details() or ""
        else:
            pytest.fail(f"{name} was taken")
        assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND), (name, code, details)
        assert word in details, (name, details)
        assert list((await ask(channel, "a04")).outputs[0].token_ids) == reference["a04"], f"after {name}"
    assert not await held(channel) & bad.keys()


async def test_admin_loads_and_unloads_on_every_replica_by_name(channel: grpc.aio.Channel) -> None:
    stub = admin_pb2_grpc.AdminServiceStub(channel)
    loaded = await stub.LoadAdapter(admin_pb2.LoadAdapterRequest(model="base", adapter="a10"))
    assert [(one.ok, one.affected_count) for one in loaded.replicas] == [(True, 1)]
    assert "a10" in await held(channel)
    for count in (1, 0):
        gone = await stub.UnloadAdapter(admin_pb2.UnloadAdapterRequest(model="base", adapter="a10"))
        assert [(one.ok, one.affected_count) for one in gone.replicas] == [(True, count)]
    assert "a10" not in await held(channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.LoadAdapter(admin_pb2.LoadAdapterRequest(model="base", adapter="nope"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
