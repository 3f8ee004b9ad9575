"""Random requests against the real service: every answer is OK or a documented status, and the service lives on.

`make fuzz` sends 10,000 (about 6 minutes); FUZZ_REQUESTS and FUZZ_SEED change how many and which.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from typing import Any

import grpc
import psutil
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.rpc import error_details_pb2, status_pb2

from tests.engine.conftest import MODEL, RealService, running, service
from tests.engine.test_grammar import check_schemas
from tests.fuzz.generator import Generator
from tokenwire.v1 import chat_pb2, embedding_pb2, generation_pb2, tokenization_pb2
from tokenwire_server.errors import REASONS, StatusError, error_details

__all__ = ["running", "service"]

pytestmark = [pytest.mark.engine, pytest.mark.timeout(3600)]

REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "10000"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
AT_ONCE = 48
GROWTH_MB = 150
"""What the replica may grow by after the first tenth of the requests."""

SERVICES: tuple[tuple[Any, str, int], ...] = (
    (chat_pb2, "ChatService", 5),
    (generation_pb2, "GenerationService", 5),
    (tokenization_pb2, "TokenizationService", 2),
    (embedding_pb2, "EmbeddingService", 1),
)


def methods() -> list[MethodDescriptor]:
    """The methods to call, each as often as its service weighs."""
    return [
        method
        for module, name, weight in SERVICES
        for method in module.DESCRIPTOR.services_by_name[name].methods
        for _ in range(weight)
    ]


def resident_mb(pid: int) -> float:
    """Memory of the replicas, which hold the front end; the engine core's own is vLLM's."""
    below = psutil.Process(pid).children(recursive=True)
    return sum(p.memory_info().rss for p in below if "ServeReplica" in " ".join(p.cmdline())) / 2**20


def complaint(status: status_pb2.Status, code: grpc.StatusCode) -> str:
    """What is wrong with a refusal, or ""."""
    error = StatusError(status)
    if error.reason not in REASONS:
        return f"{code}: no documented reason"
    if REASONS[error.reason].grpc_code != code.value[0] or status.code != code.value[0]:
        return f"{error.reason} with {code}"
    if error.reason == "INTERNAL":
        return "INTERNAL"
    if error.reason in ("INVALID_FIELD", "FEATURE_UNSUPPORTED"):
        bad = error_details(status, error_details_pb2.BadRequest)
        if bad is None or not bad.field_violations:
            return f"{error.reason} without a BadRequest"
        if not bad.field_violations[0].field and "not a valid" not in status.message:
            return f"{error.reason} names no field: {status.message}"
    return ""


async def call(service: RealService, method: MethodDescriptor, data: bytes) -> tuple[str, str]:
    """Sends bytes; returns the outcome's name and what is wrong with it, or ""."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    make = service.channel.unary_stream if method.server_streaming else service.channel.unary_unary
    rpc = make(path)(data, timeout=60)
    events = 0
    try:
        if method.server_streaming:
            async for _ in rpc:
                events += 1
        else:
            await rpc
    except grpc.aio.AioRpcError as error:
        details = dict(error.trailing_metadata() or ())
        packed = details.get("grpc-status-details-bin")
        if packed is None:
            return error.code().name, f"{error.code().name} without details: {error.details()}"
        status = status_pb2.Status.FromString(packed)
        if events and StatusError(status).reason != "DEADLINE_EXCEEDED":
            return error.code().name, f"refused after {events} events: {status.message}"
        return StatusError(status).reason, complaint(status, error.code())
    return "OK", ""


async def test_ten_thousand_requests(service: RealService) -> None:
    chooser, generator = random.Random(SEED), Generator(SEED, MODEL)
    outcomes: Counter[str] = Counter()
    complaints: list[str] = []
    limit = asyncio.Semaphore(AT_ONCE)
    every = methods()

    async def one(number: int) -> None:
        async with limit:
            method = chooser.choice(every)
            request = generator.request(method.input_type)
            data = request.SerializeToString()
            if chooser.random() < 0.05:
                data = generator.corrupt(data)
            name, wrong = await call(service, method, data)
            outcomes[name] += 1
            if wrong:
                complaints.append(f"request {number}, {method.name}: {wrong}; {str(request)[:600]!r}")

    tenth = max(1, REQUESTS // 10)
    await asyncio.gather(*map(one, range(tenth)))
    memory = [resident_mb(service.pid)]
    for start in range(tenth, REQUESTS, tenth):
        await asyncio.gather(*map(one, range(start, min(start + tenth, REQUESTS))))
        memory.append(resident_mb(service.pid))
    print(f"\n{sum(outcomes.values())} requests: {dict(outcomes.most_common())}")
    print("memory of the replica after each tenth, MB:", *(round(mb) for mb in memory))
    assert not complaints, "\n".join([f"{len(complaints)} complaints", *complaints[:20]])
    assert outcomes["OK"] > REQUESTS * 0.1
    assert outcomes["INVALID_FIELD"] > REQUESTS * 0.1
    assert memory[-1] - memory[0] < GROWTH_MB
    ready = await service.http.get("/readyz")
    assert ready.status_code == 200


async def test_two_hundred_random_schemas(service: RealService) -> None:
    await check_schemas(service, 200)
