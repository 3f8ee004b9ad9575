"""Every front end on the same engine and the same GPU, one after the other: tokens a second by streams at once.

    python benchmarks/gpu.py FOLDER RESULTS.json [ARM ...]

FOLDER gets a model without weights (`load_format: dummy`): a Llama shape of 0.6B, or what SHAPE names, with the
tokenizer of TOKENIZER. Each arm starts its own server, is warmed up, measured and stopped; a figure is of one run, and
`again` of a second one with the same server. Peers are what a user would start: vLLM's own servers and ray.serve.llm.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import load
import yaml

MODEL = "bench"
TOKENS = 256
PROMPT = 128
LEVELS = tuple(int(x) for x in os.environ.get("LEVELS", "4,64,256,256").split(","))
CLIENTS = int(os.environ.get("CLIENTS", "4"))
GRPC, REST = 9000, 8000

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 49152,
    "max_position_embeddings": 4096,
    "eos_token_id": 2,
    "bos_token_id": 1,
    "dtype": "bfloat16",
    "tie_word_embeddings": True,
    **json.loads(os.environ.get("SHAPE", "{}")),
}

ENGINE: dict[str, Any] = {
    "load_format": "dummy",
    "max_model_len": 2048,
    "max_num_seqs": 512,
    "max_num_batched_tokens": 8192,
    "gpu_memory_utilization": 0.7,
    "compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"},
    **json.loads(os.environ.get("ENGINE", "{}")),
}


def flags() -> list[str]:
    """ENGINE as flags of `vllm serve`."""
    made = []
    for name, value in ENGINE.items():
        made.append("--" + name.replace("_", "-"))
        if value is not True:
            made.append(json.dumps(value) if isinstance(value, dict) else str(value))
    return made


@contextmanager
def server(command: list[str], url: str, log: Path, **environment: str) -> Iterator[float]:
    """Starts a server in a process group of its own; yields the seconds until it answered; ends the group."""
    began = time.monotonic()
    with log.open("w") as out:
        process = subprocess.Popen(  # noqa: S603 - our own words
            command, stdout=out, stderr=out, start_new_session=True, env={**os.environ, **environment}
        )
        try:
            while True:
                if process.poll() is not None or time.monotonic() - began > 240:
                    raise RuntimeError(f"did not start: {log.read_text()[-1500:]}")
                try:
                    with urllib.request.urlopen(url, timeout=2) as reply:  # noqa: S310 - our own address
                        if reply.status == 200:
                            break
                except OSError:
                    time.sleep(0.3)
            yield time.monotonic() - began
        finally:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=40)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def ask(door: str, address: str, streams: int, first: int, interval: int = 0) -> dict[str, Any]:
    """One measurement, in a client of its own."""
    requests = streams * (1 if streams > 64 else 2)
    words = [door, address, MODEL, "--streams", streams, "--requests", requests, "--tokens", TOKENS, "--prompt", PROMPT]
    words += ["--processes", min(CLIENTS, streams), "--interval", interval, "--first", first]
    command = [sys.executable, str(Path(load.__file__)), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603 - our own words
    if not done.stdout.strip():
        return {"errors": requests, "first_errors": [done.stderr[-500:]]}
    return dict(json.loads(done.stdout))


def measure(results: dict[str, Any], name: str, door: str, address: str, interval: int = 0) -> None:
    """Warms up and measures one door at every level."""
    ask(door, address, 16, 10**6, interval)
    for number, streams in enumerate(LEVELS):
        figures = ask(door, address, streams, 1000 * (number + 1), interval)
        label = f"{streams}" + (" again" if streams in LEVELS[:number] else "")
        results.setdefault(name, {})[label] = figures
        print(f"  {name:<34} {label:>9}  {figures.get('tokens_per_s')} tokens/s  {figures}", flush=True)


def arm_floor(folder: Path, results: dict[str, Any]) -> None:
    """AsyncLLM.generate in one process, with no server: for each token an output, and for four."""
    command = [sys.executable, __file__, "--floor", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)  # noqa: S603 - our own words
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            results.setdefault(row.pop("name"), {})[row.pop("label")] = row
            print("  floor", line, flush=True)
    if done.returncode:
        print(done.stderr[-1500:])


async def floor(folder: Path) -> None:
    """The floor's own process."""
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM

    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(model=str(folder), **ENGINE))

    async def one(number: int, interval: int) -> int:
        params = SamplingParams(
            max_tokens=TOKENS,
            ignore_eos=True,
            temperature=1.0,
            output_kind=RequestOutputKind.DELTA,
            stream_interval=interval,
        )
        count = 0
        prompt: Any = {"prompt_token_ids": load.prompt_ids(number, PROMPT)}
        async for out in engine.generate(prompt, params, f"r{number}-{interval}"):
            count += len(out.outputs[0].token_ids)
        return count

    first = 0
    for interval in (1, 4):
        await asyncio.gather(*(one(first + i, interval) for i in range(16)))
        for number, streams in enumerate(LEVELS):
            first += 1000
            began = time.perf_counter()
            tokens = sum(await asyncio.gather(*(one(first + i, interval) for i in range(streams))))
            seconds = time.perf_counter() - began
            label = f"{streams}" + (" again" if streams in LEVELS[:number] else "")
            name = "AsyncLLM in process" + (f", interval {interval}" if interval > 1 else "")
            print(json.dumps({"name": name, "label": label, "tokens_per_s": round(tokens / seconds, 1)}), flush=True)
    engine.shutdown()


def arm_ours(folder: Path, results: dict[str, Any]) -> None:
    """Tokenwire as `tokenwire serve` starts it: gRPC by its own choice of interval, fixed at 1, and REST."""
    config = {
        "llm_configs": [
            {
                "model_loading_config": {"model_id": MODEL, "model_source": str(folder)},
                "engine_kwargs": ENGINE,
                "deployment_config": {"max_ongoing_requests": 1024},
            }
        ]
    }
    path = folder.parent / "ours.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "tokenwire_server.cli", "serve", str(path)]
    with server(command, f"http://127.0.0.1:{REST}/readyz", folder.parent / "ours.log") as seconds:
        results["start seconds, ours"] = round(seconds, 1)
        measure(results, "ours, gRPC", "generate", f"127.0.0.1:{GRPC}")
        measure(results, "ours, gRPC, interval 1", "generate", f"127.0.0.1:{GRPC}", 1)
        measure(results, "ours, REST", "completions", f"127.0.0.1:{REST}")


def arm_vllm(folder: Path, results: dict[str, Any], name: str = "vllm serve", **environment: str) -> None:
    """VLLM's own server, its Python front end."""
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(folder), "--served-model-name", MODEL]
    command += ["--port", str(REST), *flags()]
    log = folder.parent / f"{name.replace(' ', '-')}.log"
    with server(command, f"http://127.0.0.1:{REST}/health", log, **environment) as seconds:
        results[f"start seconds, {name}"] = round(seconds, 1)
        measure(results, name, "completions", f"127.0.0.1:{REST}")


def arm_rust(folder: Path, results: dict[str, Any]) -> None:
    """VLLM's Rust front end."""
    arm_vllm(folder, results, "vllm serve, Rust", VLLM_USE_RUST_FRONTEND="1")


def arm_rayllm(folder: Path, results: dict[str, Any], name: str = "ray.serve.llm", **environment: str) -> None:
    """Ray Serve LLM's build_openai_app with one model."""
    program = folder.parent / "rayllm.py"
    program.write_text(
        "from ray import serve\nfrom ray.serve.llm import LLMConfig, build_openai_app\n"
        f"config = LLMConfig(model_loading_config=dict(model_id={MODEL!r}, model_source={str(folder)!r}),\n"
        f"    engine_kwargs={ENGINE!r}, deployment_config=dict(num_replicas=1, max_ongoing_requests=1024))\n"
        "serve.run(build_openai_app({'llm_configs': [config]}), blocking=True)\n"
    )
    log = folder.parent / f"{name.replace(' ', '-').replace(',', '')}.log"
    with server([sys.executable, str(program)], f"http://127.0.0.1:{REST}/v1/models", log, **environment) as seconds:
        results[f"start seconds, {name}"] = round(seconds, 1)
        measure(results, name, "completions", f"127.0.0.1:{REST}")


def arm_rayllm_fast(folder: Path, results: dict[str, Any]) -> None:
    """The same with HAProxy, the throughput flags and direct streaming."""
    switches = ("RAY_SERVE_ENABLE_HA_PROXY", "RAY_SERVE_THROUGHPUT_OPTIMIZED", "RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING")
    arm_rayllm(folder, results, "ray.serve.llm, optimised", **dict.fromkeys(switches, "1"))


ARMS = {
    "floor": arm_floor,
    "ours": arm_ours,
    "vllm": arm_vllm,
    "rust": arm_rust,
    "rayllm": arm_rayllm,
    "rayllm-fast": arm_rayllm_fast,
}


def main() -> int:
    """Runs the arms; writes and prints the figures."""
    if sys.argv[1] == "--floor":
        asyncio.run(floor(Path(sys.argv[2])))
        return 0
    folder, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"):
        source = Path(os.environ["TOKENIZER"]) / name
        if source.exists():
            shutil.copy(source, folder)
    results: dict[str, Any] = {"levels": LEVELS, "tokens": TOKENS, "prompt": PROMPT, "shape": CONFIG, "engine": ENGINE}
    for arm in sys.argv[3:] or ARMS:
        began = time.monotonic()
        print(f"{arm}:", flush=True)
        try:
            ARMS[arm](folder, results)
        except Exception as error:  # noqa: BLE001 - an arm that fails is reported, and the next one runs
            results[f"failed, {arm}"] = f"{type(error).__name__}: {str(error)[:1500]}"
            print(f"  {arm} FAILED: {error}", flush=True)
        results[f"seconds, {arm}"] = round(time.monotonic() - began, 1)
        out.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
