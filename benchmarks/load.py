"""One load client for gRPC and HTTP: so many streams at once, spread over processes, every token counted.

    python benchmarks/load.py {generate,completions} ADDRESS MODEL --streams 256 --requests 256 --tokens 256

Prints one JSON object: tokens a second, time to first token, messages, time between messages. A request that does not
bring exactly the tokens it asked for is an error and is counted, never dropped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import grpc

from tokenwire.v1 import generation_pb2, generation_pb2_grpc, sampling_pb2


@dataclass
class Tally:
    """What one process saw."""

    tokens: int = 0
    messages: int = 0
    errors: list[str] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    began: float = 0.0
    ended: float = 0.0


def prompt_ids(number: int, length: int) -> list[int]:
    """A prompt of its own for each request, so that no prefix cache helps."""
    return [(number * 7919 + i * 104729) % 40_000 + 1000 for i in range(length)]


async def by_generate(stub: Any, args: argparse.Namespace, number: int, tally: Tally) -> None:
    """One StreamGenerate."""
    output = sampling_pb2.OutputOptions()
    if args.interval:
        output.stream_interval = args.interval
    request = generation_pb2.GenerateRequest(
        model=args.model,
        token_ids=generation_pb2.TokenIds(ids=prompt_ids(number, args.prompt)),
        sampling=sampling_pb2.SamplingParams(max_tokens=args.tokens, temperature=1.0, ignore_eos=True),
        output=output,
    )
    began = last = time.perf_counter()
    counted = 0
    async for event in stub.StreamGenerate(request, timeout=300):
        now = time.perf_counter()
        kind = event.WhichOneof("event")
        if kind == "start":
            tally.first.append(now - began)
        elif kind == "end":
            counted = event.end.usage.output_token_count
        tally.messages += kind == "delta"
        tally.gaps.append(now - last)
        last = now
    tally.tokens += counted
    if counted != args.tokens:
        tally.errors.append(f"request {number}: {counted} tokens")


async def by_completions(session: Any, args: argparse.Namespace, number: int, tally: Tally) -> None:
    """One POST /v1/completions with stream true."""
    body = {
        "model": args.model,
        "prompt": prompt_ids(number, args.prompt),
        "max_tokens": args.tokens,
        "temperature": 1.0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    began = last = time.perf_counter()
    counted, first = 0, True
    async with session.post(f"http://{args.address}/v1/completions", json=body) as reply:
        async for line in reply.content:
            if not line.startswith(b"data: {"):
                continue
            now = time.perf_counter()
            if first:
                tally.first.append(now - began)
                first = False
            tally.messages += 1
            tally.gaps.append(now - last)
            last = now
            if b'"usage":{' in line or b'"usage": {' in line:
                counted = json.loads(line[6:])["usage"]["completion_tokens"]
    tally.tokens += counted
    if counted != args.tokens:
        tally.errors.append(f"request {number}: {counted} tokens, HTTP {reply.status}")


async def run(args: argparse.Namespace, numbers: list[int], streams: int, tally: Tally) -> None:
    """Works off the numbers, so many at a time."""
    pending = iter(numbers)

    async def worker(one: Any, client: Any) -> None:
        for number in pending:
            try:
                await one(client, args, number, tally)
            except Exception as error:  # noqa: BLE001 - counted, whatever it was
                tally.errors.append(f"request {number}: {type(error).__name__}: {str(error)[:200]}")

    tally.began = time.time()
    if args.door == "generate":
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        async with grpc.aio.insecure_channel(args.address, options=options) as channel:
            stub = generation_pb2_grpc.GenerationServiceStub(channel)
            await asyncio.gather(*(worker(by_generate, stub) for _ in range(streams)))
    else:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=300)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
            await asyncio.gather(*(worker(by_completions, session) for _ in range(streams)))
    tally.ended = time.time()


def work(args: argparse.Namespace, number: int, results: Any, start: Any) -> None:
    """One process of the client."""
    tally = Tally()
    numbers = list(range(args.first + number, args.first + args.requests, args.processes))
    streams = args.streams // args.processes + (number < args.streams % args.processes)
    start.wait()
    asyncio.run(run(args, numbers, max(1, streams), tally))
    results.put(tally)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Runs the load; returns the figures."""
    context = multiprocessing.get_context("fork")
    results, start = context.Queue(), context.Event()
    processes = [context.Process(target=work, args=(args, i, results, start)) for i in range(args.processes)]
    for process in processes:
        process.start()
    time.sleep(0.5)
    start.set()
    tallies = [results.get() for _ in processes]
    for process in processes:
        process.join()
    seconds = max(t.ended for t in tallies) - min(t.began for t in tallies)
    first = sorted(x for t in tallies for x in t.first)
    gaps = sorted(x for t in tallies for x in t.gaps)
    tokens = sum(t.tokens for t in tallies)
    errors = [e for t in tallies for e in t.errors]
    return {
        "tokens_per_s": round(tokens / seconds, 1),
        "tokens": tokens,
        "seconds": round(seconds, 3),
        "messages": sum(t.messages for t in tallies),
        "ttft_ms": round(statistics.median(first) * 1000, 1) if first else None,
        "ttft_p99_ms": round(first[int(len(first) * 0.99)] * 1000, 1) if first else None,
        "gap_p99_ms": round(gaps[int(len(gaps) * 0.99)] * 1000, 1) if gaps else None,
        "errors": len(errors),
        "first_errors": errors[:3],
    }


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("door", choices=["generate", "completions"])
    made.add_argument("address", help="host:port")
    made.add_argument("model")
    made.add_argument("--streams", type=int, default=64)
    made.add_argument("--requests", type=int, default=64)
    made.add_argument("--tokens", type=int, default=256)
    made.add_argument("--prompt", type=int, default=128, help="tokens of each prompt")
    made.add_argument("--processes", type=int, default=1)
    made.add_argument("--interval", type=int, default=0, help="stream_interval; 0 leaves it to the server")
    made.add_argument("--first", type=int, default=0, help="number of the first request")
    return made


if __name__ == "__main__":
    figures = measure(parser().parse_args())
    print(json.dumps(figures))
    sys.exit(1 if figures["errors"] else 0)
