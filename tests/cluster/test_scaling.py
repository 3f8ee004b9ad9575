"""Replicas come and go by load, and none of it fails a request (echo engine)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from tests.cluster.conftest import serving
from tokenwire.admin.v1 import admin_pb2, admin_pb2_grpc
from tokenwire.v1 import chat_pb2, chat_pb2_grpc

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

ZERO = """
llm_configs:
  - model_loading_config: {model_id: sleeper}
    llm_engine: echo
    engine_kwargs: {start_s: 1.0, step_ms: 1}
    deployment_config:
      autoscaling_config:
        {min_replicas: 0, max_replicas: 1, downscale_delay_s: 2, downscale_to_zero_delay_s: 2}
      ray_actor_options: {num_cpus: 0.25}
ingress_deployment_config: {ray_actor_options: {num_cpus: 0.25}}
admin: true
"""

STEP = """
llm_configs:
  - model_loading_config: {model_id: echo}
    llm_engine: echo
    engine_kwargs: {step_ms: 20}
    deployment_config:
      autoscaling_config: {min_replicas: 1, max_replicas: 4, target_ongoing_requests: 4, upscale_delay_s: 1,
                           downscale_delay_s: 3, look_back_period_s: 2}
      ray_actor_options: {num_cpus: 0.25}
admin: true
"""


def request(model: str, text: str = "a b c", tokens: int = 3) -> chat_pb2.ChatRequest:
    message = chat_pb2.ChatMessage(role=chat_pb2.ROLE_USER, content=[chat_pb2.ContentPart(text=text)])
    return chat_pb2.ChatRequest(model=model, messages=[message], sampling={"max_tokens": tokens})


async def replica_count(channel: grpc.aio.Channel) -> int:
    stub = admin_pb2_grpc.AdminServiceStub(channel)
    return len((await stub.GetLoad(admin_pb2.GetLoadRequest(), timeout=15)).replicas)


async def test_a_sleeping_model_wakes_for_its_first_request(tmp_path: Path) -> None:
    with serving(ZERO, tmp_path) as cluster:
        async with grpc.aio.insecure_channel(cluster.target) as channel:
            stub = chat_pb2_grpc.ChatServiceStub(channel)
            for _ in range(2):
                began = time.monotonic()
                answers = await asyncio.gather(*(stub.Chat(request("sleeper"), timeout=60) for _ in range(5)))
                print(f"first answers after {time.monotonic() - began:.1f} s")
                assert {answer.choices[0].content for answer in answers} == {"a b c"}
                while cluster.processes("ServeReplica:tokenwire:model_0"):
                    await asyncio.sleep(0.2)  # until it sleeps again


async def test_a_load_step_scales_up_and_down_without_an_error(tmp_path: Path) -> None:
    with serving(STEP, tmp_path) as cluster:
        async with grpc.aio.insecure_channel(cluster.target) as channel:
            stub = chat_pb2_grpc.ChatServiceStub(channel)
            stop = asyncio.Event()
            codes: list[Any] = []

            async def load() -> None:
                while not stop.is_set():
                    count = 0
                    async for event in stub.StreamChat(request("echo", tokens=50), timeout=60):
                        count += event.HasField("delta")
                    codes.append(count)

            assert await replica_count(channel) == 1
            tasks = [asyncio.create_task(load()) for _ in range(16)]
            while await replica_count(channel) < 4:
                await asyncio.sleep(0.2)
            stop.set()
            await asyncio.gather(*tasks)
            assert set(codes) == {50}
            async with httpx.AsyncClient(base_url=cluster.base_url) as http:
                while await replica_count(channel) > 1:
                    assert (await http.get("/readyz")).status_code == 200
                    assert (await stub.Chat(request("echo"), timeout=30)).choices[0].content == "a b c"
                    await asyncio.sleep(0.2)
