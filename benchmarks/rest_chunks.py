"""What a chunk of REST costs: the application between ready events and `send`, without a socket.

python benchmarks/rest_chunks.py
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from google.protobuf.message import Message

from tokenwire.v1 import chat_pb2, generation_pb2, output_pb2
from tokenwire_server.backend import CallContext
from tokenwire_server.rest import create_app

CHUNKS = 2000
ROUNDS = 15
WORDS = [" the", " a", " größe", " 'quoted'", '"', " word", "\n", " 🦜"]

HI: dict[str, Any] = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", HI),
    "chat, usage in each chunk": (
        "/v1/chat/completions",
        HI | {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    ),
    "completions": ("/v1/completions", {"model": "m", "prompt": "hi", "stream": True}),
    "responses": ("/v1/responses", {"model": "m", "input": "hi", "stream": True}),
    "messages": ("/v1/messages", HI | {"max_tokens": 9000}),
    "gateway": ("/tokenwire/v1/streamChat", {"messages": [{"role": "ROLE_USER", "content": [{"text": "hi"}]}]}),
}


class ReadyBackend:
    """Has all events of a stream at hand; gives the loop a turn between them, as a stream does."""

    def __init__(self) -> None:
        self._chat = _events(chat_pb2.StreamChatResponse, chat_pb2.ChatDelta, "content")
        self._text = _events(generation_pb2.StreamGenerateResponse, generation_pb2.GenerateDelta, "text")

    def authorize(self, call: CallContext) -> None:
        """Lets everybody in."""

    async def unary(self, method: str, request: Message, call: CallContext) -> Message:
        """Nothing here is unary."""
        raise NotImplementedError(method)

    async def stream(self, method: str, request: Message, call: CallContext) -> AsyncIterator[Message]:
        """The events."""
        for event in self._chat if method.endswith("StreamChat") else self._text:
            await asyncio.sleep(0)
            yield event


def _events(event: Any, delta: Any, field: str) -> list[Any]:
    words = [event(delta=delta(**{field: WORDS[number % len(WORDS)]})) for number in range(CHUNKS)]
    finish = output_pb2.OutputFinish(finish_reason=output_pb2.FINISH_REASON_STOP)
    usage = output_pb2.Usage(prompt_token_count=3, output_token_count=CHUNKS)
    start = event(start=output_pb2.StreamStart(model="m", prompt_token_count=3))
    return [start, *words, event(finish=finish), event(end=output_pb2.StreamEnd(usage=usage))]


async def stream(app: Any, path: str, body: dict[str, Any]) -> int:
    """Runs one request; returns how many bytes came."""
    data, gone = json.dumps(body).encode(), asyncio.Event()
    sent = [{"type": "http.request", "body": data}]
    received = 0

    async def receive() -> dict[str, Any]:
        if sent:
            return sent.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal received
        if message.get("status", 200) != 200:
            raise RuntimeError(f"the stream was refused: {message}")
        received += len(message.get("body", b""))

    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await app(scope, receive, send)
    return received


async def main() -> int:
    """Prints, for each surface, chunks a second and CPU for a thousand."""
    app = create_app(ReadyBackend(), version="bench")
    print(f"  {'a stream of ready events':<28} {'chunks/s':>9} {'CPU ms for 1000':>16}")
    for name, (path, body) in CASES.items():
        walls, cpus = [], []
        for _ in range(ROUNDS):
            wall, cpu = time.perf_counter(), time.process_time()
            if await stream(app, path, body) < CHUNKS * 10:
                raise RuntimeError(f"{path} sent less than its chunks")
            cpus.append(time.process_time() - cpu)
            walls.append(time.perf_counter() - wall)
        rate, cost = CHUNKS / statistics.median(walls), statistics.median(cpus) / CHUNKS * 1e6
        print(f"  {name:<28} {rate:9,.0f} {cost:16.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
