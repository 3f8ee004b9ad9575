"""A real engine on a plain grpc.aio server, for tests that need a second model: prints its port, ends with its stdin.

python plain_engine.py MODEL_ID MODEL_SOURCE ENGINE_KWARGS_JSON
"""

from __future__ import annotations

import asyncio
import json
import sys

from tokenwire_server.engine.vllm_engine import VLLMEngine
from tokenwire_server.grpc_server import GrpcDoor, plain_server
from tokenwire_server.guard import Guard, GuardLimits
from tokenwire_server.service import Service
from tokenwire_server.validation import Validator


async def main(model_id: str, source: str, kwargs: str) -> None:
    engine = VLLMEngine(model_id, source, json.loads(kwargs))
    await engine.start()
    service = Service(engine, Guard(GuardLimits(), admin=True), Validator(), version="test")
    async with plain_server(GrpcDoor(service, model_id, 8 << 20), "127.0.0.1:0") as (_, port):
        print(f"port {port}", flush=True)
        await asyncio.to_thread(sys.stdin.read)
    await engine.shutdown()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
