"""Tools that others measure servers with, run to their end: `python tests/remote/run_load_tools.py --base-url URL`.

lm-eval's `local-completions` on two tiny tasks of this folder, guidellm with synthetic prompts, and `vllm bench serve`
over chat and completions. Nothing is downloaded. The exit code is 1 when a tool fails, or when any of its requests
did. lm-eval and guidellm are in an environment of their own (`requirements-loadtools.txt`), vLLM's benchmark is in the
one that runs this file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
_BENCH = """
import argparse
from vllm.benchmarks.serve import add_cli_args, main
parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""


class FailedError(Exception):
    """A tool that did not come to a good end."""


class Tools:
    """Each tool as a method that returns its figures in words."""

    def __init__(self, args: argparse.Namespace, out: Path) -> None:
        self.args = args
        self.out = out
        self.python = str(args.venv / "bin" / "python")

    def _run(self, name: str, command: list[str]) -> str:
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        caches = {"HF_DATASETS_CACHE": str(self.out / "datasets"), "NO_PROXY": "*", "OPENAI_API_KEY": "none"}
        done = subprocess.run(
            command,
            cwd=HERE / "lm_eval_task",
            env=os.environ | offline | caches,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=self.args.timeout,
            check=False,
        )
        if self.args.verbose or done.returncode:
            print(done.stdout[-6000:])
        if done.returncode:
            raise FailedError(f"{name} ended with {done.returncode}")
        return done.stdout

    def lm_eval(self) -> str:
        out = self.out / "lm-eval"
        model = f"base_url={self.args.base_url}/v1/completions,model={self.args.model}"
        command = [self.python, "-m", "lm_eval", "--model", "local-completions", "--tasks", "tiny_capitals,tiny_words"]
        command += ["--model_args", f"{model},tokenizer_backend=remote,num_concurrent=2,max_retries=1"]
        command += ["--include_path", str(HERE / "lm_eval_task"), "--output_path", str(out)]
        self._run("lm-eval", command)
        results = json.loads(next(out.rglob("results_*.json")).read_text())["results"]
        if set(results) != {"tiny_capitals", "tiny_words"}:
            raise FailedError(f"lm-eval has results of {sorted(results)}")
        accuracy, exact = results["tiny_capitals"]["acc,none"], results["tiny_words"]["exact_match,none"]
        return f"tiny_capitals acc {accuracy}, tiny_words exact_match {exact}"

    def guidellm(self, request_format: str) -> str:
        out = self.out / f"guidellm{request_format.replace('/', '-')}.json"
        backend = f"kind=openai_http,target={self.args.base_url},model={self.args.model}"
        command = [self.python, "-m", "guidellm", "run", "--disable-console-interactive"]
        command += ["--backend", f"{backend},request_format={request_format}"]
        command += ["--tokenizer", f"kind=huggingface_auto,model={self.args.tokenizer}"]
        command += ["--data", "kind=synthetic_text,prompt_tokens=32,output_tokens=16"]
        command += ["--profile", "kind=concurrent,streams=4"]
        command += ["--constraint", f"kind=max_requests,count={self.args.requests}"]
        command += ["--output", f"kind=json,path={out}"]
        self._run("guidellm", command)
        counts = json.loads(out.read_text())["benchmarks"][0]["metrics"]["request_totals"]
        if counts["errored"] or counts["successful"] < self.args.requests:
            raise FailedError(f"guidellm's requests: {counts}")
        return f"{counts['successful']} requests, {counts['errored']} errors"

    def bench(self, backend: str, path: str) -> str:
        out = self.out / f"bench-{backend}.json"
        command = [sys.executable, "-c", _BENCH, "--backend", backend, "--base-url", self.args.base_url]
        command += ["--endpoint", path, "--model", self.args.model, "--tokenizer", self.args.tokenizer]
        command += ["--dataset-name", "random", "--random-input-len", "32", "--random-output-len", "16"]
        command += ["--num-prompts", str(self.args.requests), "--max-concurrency", "4", "--ignore-eos"]
        command += ["--save-result", "--result-dir", str(out.parent), "--result-filename", out.name]
        self._run("vllm bench serve", command)
        found: dict[str, Any] = json.loads(out.read_text())
        if found["failed"] or found["completed"] != self.args.requests:
            raise FailedError(f"vllm bench serve: {found['completed']} completed, {found['failed']} failed")
        return (
            f"{found['completed']} requests, {found['failed']} failed, {found['total_output_tokens']} output tokens, "
            f"median TTFT {found['median_ttft_ms']:.0f} ms, median TPOT {found['median_tpot_ms']:.0f} ms"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", required=True, help="such as http://127.0.0.1:8000")
    parser.add_argument("--model", default="smollm2-135m", help="what the server calls its model")
    parser.add_argument("--tokenizer", help="folder of the model's tokenizer; default: the embedded model's")
    parser.add_argument("--venv", type=Path, default=REPOSITORY / ".venv-loadtools", help="where the tools are")
    parser.add_argument("--requests", type=int, default=40, help="for guidellm and vllm bench serve")
    parser.add_argument("--timeout", type=float, default=600, metavar="S", help="seconds for each tool")
    parser.add_argument("--only", action="append", default=[], help="tools whose name holds this; more than once")
    parser.add_argument("--verbose", action="store_true", help="show what the tools print")
    args = parser.parse_args()
    args.base_url = args.base_url.rstrip("/")
    if not args.tokenizer:
        from tokenwire_server.embedded import provide

        args.tokenizer = str(provide("embedded:smollm2-135m-instruct", print))
    failed = 0
    with tempfile.TemporaryDirectory(prefix="loadtools-") as folder:
        tools = Tools(args, Path(folder))
        runs: dict[str, Callable[[], str]] = {
            "lm-eval local-completions": tools.lm_eval,
            "guidellm chat": lambda: tools.guidellm("/v1/chat/completions"),
            "guidellm completions": lambda: tools.guidellm("/v1/completions"),
            "vllm bench serve openai-chat": lambda: tools.bench("openai-chat", "/v1/chat/completions"),
            "vllm bench serve openai": lambda: tools.bench("openai", "/v1/completions"),
        }
        for name, tool in runs.items():
            if args.only and not any(word in name for word in args.only):
                continue
            began = time.monotonic()
            try:
                said = f"pass  {name}: {tool()}"
            except (FailedError, subprocess.TimeoutExpired, OSError, LookupError, StopIteration) as error:
                failed += 1
                said = f"FAIL  {name}: {type(error).__name__}: {str(error)[:500]}"
            print(f"{said} ({time.monotonic() - began:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
