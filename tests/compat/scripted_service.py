"""The product's whole stack behind one port each for REST and gRPC, with a script in place of a model's weights.

    python -m tests.compat.scripted_service

REST is translated over a channel to a gRPC server over the service over VLLMEngine, with vLLM's own renderer,
detokenizer, parsers and grammars. Prints `grpc PORT` and `rest PORT`; ends when its stdin closes.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.simplefilter("ignore")  # vLLM's own, and torch's

import grpc  # noqa: E402  # after the environment that vLLM reads when it is imported
import uvicorn  # noqa: E402
import xgrammar  # noqa: E402
from xgrammar.testing import _is_grammar_accept_string  # noqa: E402

from tests.compat.obliging import answer  # noqa: E402
from tokenwire_server.engine.vllm_scripted import Script, ScriptedEngine, write_model_folder  # noqa: E402
from tokenwire_server.grpc_server import GrpcDoor, plain_server  # noqa: E402
from tokenwire_server.guard import Guard, GuardLimits  # noqa: E402
from tokenwire_server.rest import create_app  # noqa: E402
from tokenwire_server.rest.channel import CHANNEL_OPTIONS, ChannelBackend  # noqa: E402
from tokenwire_server.service import Service  # noqa: E402
from tokenwire_server.validation import Validator  # noqa: E402

MODEL = "obliging"
CONTEXT = 32_768
"""Context in tokens; each is a byte, and frameworks write long prompts."""
STEPS = (1, 3, 2, 5)
"""Bytes that come at once: calls and letters of several bytes are cut anywhere."""
STEP_S = 0.001
"""Seconds between them, so that a stream is one."""


class ObligingEngine(ScriptedEngine):
    """A ScriptedEngine whose model reads its prompt.

    Args:
        folder: Where the model without weights is written.
    """

    def __init__(self, folder: Path) -> None:
        write_model_folder(folder, ("<tool_call>", "</tool_call>"), max_model_len=CONTEXT)
        super().__init__(MODEL, folder, self._oblige, {"tool_call_parser": "hermes", "max_model_len": CONTEXT})

    def _oblige(self, request: Any) -> Script:
        tokenizer = self._engine.get_tokenizer()
        prompt = tokenizer.decode(request.prompt_token_ids, skip_special_tokens=False)
        wanted = request.sampling_params.structured_outputs
        text = answer(prompt, wanted)
        if wanted is not None and not _is_grammar_accept_string(_grammar(wanted), text):
            raise AssertionError(f"a grammar would not let the model say {text!r}: {wanted}")
        ids = self.encode(text)
        return Script(ids, STEPS * (len(ids) // sum(STEPS) + 1), step_s=STEP_S)


def _grammar(wanted: Any) -> xgrammar.Grammar:
    """What the engine core would hold the model to."""
    if wanted.json is not None:
        return xgrammar.Grammar.from_json_schema(wanted.json)
    if wanted.json_object:
        return xgrammar.Grammar.builtin_json_grammar()
    if wanted.regex is not None:
        return xgrammar.Grammar.from_regex(wanted.regex)
    if wanted.structural_tag is not None:
        return xgrammar.Grammar.from_structural_tag(wanted.structural_tag)
    return xgrammar.Grammar.from_ebnf(wanted.grammar)


async def main() -> None:
    """Serves until stdin closes."""
    with tempfile.TemporaryDirectory(prefix="tw-compat-") as folder:
        engine = ObligingEngine(Path(folder) / "model")
        await engine.start()
        service = Service(engine, Guard(GuardLimits()), Validator(), version="test")
        async with (
            plain_server(GrpcDoor(service, MODEL, 32 << 20), "127.0.0.1:0", grace_s=0) as (_, port),
            grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS) as channel,
        ):
            backend = ChannelBackend(channel)
            app = create_app(backend, version="test", ready=backend.ready, health=backend.health)
            await _serve_rest(app, port)
        await engine.shutdown()


async def _serve_rest(app: Any, grpc_port: int) -> None:
    # asyncio turns Nagle's algorithm off only where the protocol is named; else every reply waits 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)  # from here on a client waits and is not refused
    server = uvicorn.Server(
        uvicorn.Config(app, lifespan="off", ws="none", log_level="error", timeout_graceful_shutdown=2)
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    print(f"grpc {grpc_port}\nrest {listener.getsockname()[1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
