"""Starts the service, asks it one question in four ways, prints the answers and their speed, and stops it.

Run by `make demo`. Exits with 1 if any answer fails or a process of the service is left behind.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from openai import OpenAI

import tokenwire

BIN = Path(sys.executable).parent
QUESTION = "What is the capital of France?"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def by_chat(grpc: str, _rest: str) -> tuple[str, float, float]:
    with tokenwire.Client(grpc) as client:
        began = time.monotonic()
        response = client.chat(QUESTION, temperature=0)
    first = response.timing.first_token_duration.ToTimedelta().total_seconds()
    tokens = response.usage.output_token_count
    return response.choices[0].content, first, tokens / (time.monotonic() - began)


def by_stream_chat(grpc: str, _rest: str) -> tuple[str, float, float]:
    with tokenwire.Client(grpc) as client:
        began, first = time.monotonic(), 0.0
        with client.stream_chat(QUESTION, temperature=0) as stream:
            for _delta in stream:
                first = first or time.monotonic() - began
        return stream.text, first, stream.response.usage.output_token_count / (time.monotonic() - began)


def by_grpcurl(grpc: str, _rest: str) -> tuple[str, float, float]:
    """By reflection: grpcurl is given no proto file."""
    message = {"role": "ROLE_USER", "content": [{"text": QUESTION}]}
    request = json.dumps({"messages": [message], "sampling": {"temperature": 0}})
    command = [str(BIN / "grpcurl"), "-plaintext", "-d", request, grpc, "tokenwire.v1.ChatService/StreamChat"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)  # noqa: S603 - our own words
    decoder, at, text, first, tokens, total = json.JSONDecoder(), 0, "", 0.0, 0, 1.0
    while at < len(done.stdout.rstrip()):
        event, at = decoder.raw_decode(done.stdout, at + len(done.stdout[at:]) - len(done.stdout[at:].lstrip()))
        text += event.get("delta", {}).get("content", "")
        if "end" in event:
            tokens = event["end"]["usage"]["output_token_count"]
            first = float(event["end"]["timing"]["first_token_duration"].rstrip("s"))
            total = float(event["end"]["timing"]["total_duration"].rstrip("s"))
    return text, first, tokens / total


def by_openai(_grpc: str, rest: str) -> tuple[str, float, float]:
    client = OpenAI(base_url=f"{rest}/v1", api_key="none", max_retries=0)
    began, first, text, tokens = time.monotonic(), 0.0, "", 0
    stream = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=[{"role": "user", "content": QUESTION}],
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            first = first or time.monotonic() - began
            text += chunk.choices[0].delta.content
        if chunk.usage:
            tokens = chunk.usage.completion_tokens
    return text, first, tokens / (time.monotonic() - began)


WAYS: dict[str, Callable[[str, str], tuple[str, float, float]]] = {
    "gRPC Chat, Python client": by_chat,
    "gRPC StreamChat, Python client": by_stream_chat,
    "grpcurl, through reflection": by_grpcurl,
    "openai package, streaming REST": by_openai,
}


def start(grpc_port: int, http_port: int) -> subprocess.Popen[str]:
    """Starts `tokenwire serve`, shows its lines, and returns when it is ready."""
    ports = ["--grpc-port", str(grpc_port), "--http-port", str(http_port)]
    command = [str(BIN / "tokenwire"), "serve", *ports]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own words
    assert server.stdout is not None  # noqa: S101 - for the type checker
    for line in server.stdout:
        print(line, end="")
        if line.startswith("ready in"):
            return server
    sys.exit(server.wait() or 1)


def main() -> int:
    grpc_port, http_port = free_port(), free_port()
    server = start(grpc_port, http_port)
    failed = 0
    try:
        print(f"\n{QUESTION}")
        for name, ask in WAYS.items():
            try:
                text, first, rate = ask(f"localhost:{grpc_port}", f"http://localhost:{http_port}")
            except Exception as error:  # noqa: BLE001 - a way that fails is counted, whatever it was
                print(f"  {name:<32} FAILED: {type(error).__name__}: {error}")
                failed += 1
                continue
            verdict = "" if "Paris" in text else "  FAILED"
            failed += bool(verdict)
            print(f"  {name:<32} {text!r}  first token {first * 1000:.0f} ms, {rate:.0f} tokens/s{verdict}")
    finally:
        mine = psutil.Process(server.pid).children(recursive=True)
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=60)
    left = [process for process in mine if process.is_running()]
    print(f"stopped with exit code {code}; processes left behind: {len(left)}")
    return 1 if failed or code or left else 0


if __name__ == "__main__":
    sys.exit(main())
