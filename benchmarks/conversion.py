"""What conversion costs: proto -> SamplingParams and RequestOutput -> delta, microseconds at the median.

python benchmarks/conversion.py
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm.logprobs import Logprob
from vllm.outputs import CompletionOutput, RequestOutput

from tokenwire.v1 import chat_pb2, sampling_pb2
from tokenwire_server.backend import CallContext
from tokenwire_server.engine.vllm_params import EventWriter, sampling_params

GOAL_US = 15.0
ROUNDS = 400
CALLS = 100


def median_us(call: Callable[[], object]) -> float:
    """Median over rounds of the mean time of one call, microseconds."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - began) / CALLS * 1e6)
    return statistics.median(times)


def output(text: str, token: int, logprobs: list[Any] | None = None) -> RequestOutput:
    """What vLLM gives for one token."""
    part = CompletionOutput(0, text, [token], None, logprobs)
    return RequestOutput("r", None, list(range(32)), None, [part], finished=False)


def writer(options: sampling_pb2.OutputOptions) -> EventWriter[chat_pb2.StreamChatResponse]:
    """A writer in mid-stream."""
    made = EventWriter(
        chat_pb2.StreamChatResponse,
        model="m",
        call=CallContext(),
        output=options,
        copies=1,
        to_bytes=lambda _id, text: text.encode(),
    )
    list(made.write(output("first", 1)))
    return made


def main() -> int:
    """Prints each cost; 1 if one misses its goal."""
    plain = sampling_pb2.SamplingParams(temperature=0.7, max_tokens=256)
    full = sampling_pb2.SamplingParams(
        temperature=0.7,
        top_p=0.9,
        top_k=40,
        min_p=0.01,
        presence_penalty=0.1,
        frequency_penalty=0.1,
        seed=7,
        max_tokens=256,
        min_tokens=1,
        stop=["\n\n", "END"],
        stop_token_ids=[2, 3],
        logit_bias={5: 1.0, 9: -1.0},
    )
    options = sampling_pb2.OutputOptions()
    ids = sampling_pb2.OutputOptions(return_token_ids=True)
    ranked = sampling_pb2.OutputOptions(logprobs=3)
    entry = {i: Logprob(-0.1 * i, i, f" t{i}") for i in range(1, 4)}

    def params(sampling: sampling_pb2.SamplingParams) -> Callable[[], object]:
        return lambda: sampling_params(sampling, options, defaults={}, max_tokens=256, stream=True)

    def delta(chosen: sampling_pb2.OutputOptions, out: RequestOutput, *, wire: bool = False) -> Callable[[], object]:
        made = writer(chosen)
        if wire:
            return lambda: [event.SerializeToString() for event in made.write(out)]
        return lambda: list(made.write(out))

    rows = {
        "proto -> SamplingParams, two knobs": params(plain),
        "proto -> SamplingParams, a dozen knobs": params(full),
        "RequestOutput -> delta, text": delta(options, output(" word", 1)),
        "RequestOutput -> delta, text, to bytes": delta(options, output(" word", 1), wire=True),
        "RequestOutput -> delta, text and ids": delta(ids, output(" word", 1)),
        "RequestOutput -> delta, three logprobs": delta(ranked, output(" t1", 1, [entry])),
    }
    missed = 0
    for name, call in rows.items():
        took = median_us(call)
        missed += took > GOAL_US
        print(f"  {name:<42} {took:6.2f} us  {'met' if took <= GOAL_US else 'missed'} (goal {GOAL_US:.0f})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
