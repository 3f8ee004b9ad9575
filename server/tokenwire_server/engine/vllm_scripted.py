"""A vLLM whose model is a script: everything of AsyncLLM is real but the engine core.

`ScriptedEngine` is a VLLMEngine whose AsyncLLM has vLLM's own renderer, input processor, detokenizer, output collector
and parsers; only the core, which would run the model, is `ScriptedCore`: it emits the token ids it is told, at a set
pace, with faults. What a small model will not do by itself (think, call tools in each family's syntax, split a code
point at a given place) is tested so, and what serving costs is measured without a model.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, FinishReason
from vllm.v1.engine import core_client as vllm_core_client
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.metrics.stats import PrefillStats, SchedulerStats

from tokenwire_server.engine.vllm_engine import VLLMEngine
from tokenwire_server.engine.vllm_params import byte_alphabet

__all__ = ["RepeatingEngine", "Script", "ScriptedCore", "ScriptedEngine", "write_model_folder"]

CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<|call|>{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}"
    "<|end|>{% endfor %}{% if tools %}<|tools|>{{ tools | tojson }}{% endif %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""A template that shows everything it is given."""

EOS = "<|end|>"

_MARKERS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
"""Added tokens of a RepeatingEngine: hermes' and qwen3's."""


def write_model_folder(
    folder: Path, special_tokens: Sequence[str] = (), *, template: str = CHAT_TEMPLATE, max_model_len: int = 8192
) -> Path:
    """Writes a model without weights: a config and a byte-level tokenizer in which each byte is a token.

    Args:
        folder: Where; made if it is not there.
        special_tokens: Texts that are one token each, such as `<think>`.
        template: Chat template.
        max_model_len: Context in tokens.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE(vocab=byte_alphabet(), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    own = [EOS, "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|developer|>", "<|call|>", "<|tools|>"]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in own])
    # Families' markers are added tokens of one id; whether a decoder hides them is what parsers differ about.
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in special_tokens])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "vocab_size": tokenizer.get_vocab_size(),
        "max_position_embeddings": max_model_len,
        "eos_token_id": tokenizer.token_to_id(EOS),
        "bos_token_id": None,
        "dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": EOS,
        "chat_template": template,
        "model_max_length": max_model_len,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return folder


@dataclass
class Script:
    """What the model says to one request."""

    token_ids: Sequence[int]
    """The tokens, without an end-of-sequence token."""
    steps: Sequence[int] = ()
    """How many tokens come in each step; what is left after these comes one at a time."""
    ttft_s: float = 0.0
    """Time to the first token, seconds."""
    step_s: float = 0.0
    """Time between steps, seconds."""
    end: FinishReason | None = FinishReason.STOP
    """Why it ends: STOP emits the end-of-sequence token; None stays silent after the last token."""
    dies_after: int | None = None
    """Tokens after which the whole core dies."""


@dataclass
class _Run:
    """One request in the core."""

    request: EngineCoreRequest
    script: Script
    due: float
    sent: int = 0
    step: int = 0
    stats: PrefillStats | None = field(default_factory=PrefillStats)


class ScriptedCore:
    """Stands where vLLM's EngineCoreClient would: takes requests, gives out what their scripts say.

    It is driven by being asked: one call of `get_output_async` is one step for every request that is due, so a script
    without pauses is as fast as its reader.

    Args:
        tell: Called with each request; returns its script.
        eos_token_id: The model's end-of-sequence token.
    """

    engine_ranks_managed = (0,)

    def __init__(self, tell: Callable[[EngineCoreRequest], Script], eos_token_id: int) -> None:
        self._tell = tell
        self._eos = eos_token_id
        self._runs: dict[str, _Run] = {}
        self._changed = asyncio.Event()
        self._idle_reported = True
        self.resources = SimpleNamespace(engine_dead=False)
        self.aborted: list[str] = []
        """Ids that were aborted, for tests."""

    async def get_supported_tasks_async(self) -> tuple[str, ...]:
        """What vLLM asks first."""
        return ("generate",)

    async def add_request_async(self, request: EngineCoreRequest) -> None:
        """A request comes in."""
        script = self._tell(request)
        self._runs[request.request_id] = _Run(request, script, time.monotonic() + script.ttft_s)
        self._changed.set()

    async def abort_requests_async(self, request_ids: list[str]) -> None:
        """Requests end; the front end has forgotten them already."""
        for request_id in request_ids:
            if self._runs.pop(request_id, None) is not None:
                self.aborted.append(request_id)
        self._changed.set()

    async def reset_prefix_cache_async(self, *_args: Any, **_kwargs: Any) -> bool:
        """There is none."""
        return True

    def shutdown(self, timeout: float | None = None) -> None:
        """Nothing to end."""

    async def get_output_async(self) -> EngineCoreOutputs:
        """The outputs of one step."""
        while True:
            self._changed.clear()
            outputs = self._step()
            if outputs or not (self._runs or self._idle_reported):
                self._idle_reported = not self._runs
                await asyncio.sleep(0)  # the loop is shared with those who read
                stats = SchedulerStats(num_running_reqs=len(self._runs))
                return EngineCoreOutputs(outputs=outputs, scheduler_stats=stats)
            due = min((run.due for run in self._runs.values()), default=float("inf"))
            try:
                async with asyncio.timeout(None if due == float("inf") else max(0.0, due - time.monotonic())):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _step(self) -> list[EngineCoreOutput]:
        now = time.monotonic()
        outputs = []
        for request_id, run in list(self._runs.items()):
            if run.due > now:
                continue
            if run.script.dies_after is not None and run.sent >= run.script.dies_after:
                self.resources.engine_dead = True
                raise EngineDeadError()
            outputs.append(self._next(run))
            run.due = now + run.script.step_s
            if outputs[-1].finished:
                del self._runs[request_id]
            elif run.sent >= len(run.script.token_ids) and run.script.end is None:
                run.due = float("inf")
        return outputs

    def _next(self, run: _Run) -> EngineCoreOutput:
        script, params = run.script, run.request.sampling_params
        limit = params.max_tokens if params is not None and params.max_tokens is not None else len(script.token_ids) + 1
        size = script.steps[run.step] if run.step < len(script.steps) else 1
        ids = list(script.token_ids[run.sent : min(run.sent + size, limit)])
        run.sent += len(ids)
        run.step += 1
        finish: FinishReason | None = None
        if run.sent >= len(script.token_ids) and script.end is not None:
            finish = script.end
            if finish is FinishReason.STOP:
                ids.append(self._eos)
        if run.sent >= limit and len(script.token_ids) >= limit:
            finish = FinishReason.LENGTH
            ids = [token for token in ids if token != self._eos]
        stats, run.stats = run.stats, None
        return EngineCoreOutput(run.request.request_id, ids, finish_reason=finish, prefill_stats=stats)


class ScriptedEngine(VLLMEngine):
    """A VLLMEngine that says what it is told.

    Args:
        model_id: What requests name it by.
        folder: From `write_model_folder`.
        tell: Called with each request of vLLM's; returns its script.
        engine_kwargs: As for VLLMEngine; `tool_call_parser` and `reasoning_parser` among them.
    """

    def __init__(
        self,
        model_id: str,
        folder: Path,
        tell: Callable[[EngineCoreRequest], Script],
        engine_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model_id, str(folder), {"enforce_eager": True, **(engine_kwargs or {})})
        self._tell = tell
        eos = json.loads((folder / "config.json").read_text())["eos_token_id"]
        self.core = ScriptedCore(lambda request: self._tell(request), eos)

    def _build_client(self, args: AsyncEngineArgs) -> AsyncLLM:
        # AsyncLLM makes its core by this one function; nothing else of vLLM is touched.
        with patch.object(
            vllm_core_client.EngineCoreClient, "make_async_mp_client", lambda *_args, **_kwargs: self.core
        ):
            return super()._build_client(args)

    async def _warm_up(self, client: AsyncLLM) -> None:
        """There is nothing to warm up, and no script for it."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, its markers one id each."""
        ids: list[int] = self._engine.get_tokenizer().encode(text, add_special_tokens=False)
        return ids


class RepeatingEngine(ScriptedEngine):
    """Says the last user message again, or the whole prompt where there is none: what runs as `llm_engine: scripted`.

    With `ignore_eos` it goes on from the beginning until `max_tokens`. A grammar is not held to.

    Args:
        model_id: What requests name it by.
        ttft_ms: Milliseconds to the first token.
        step_ms: Milliseconds between steps.
        tokens_per_step: Tokens that come at once.
        engine_kwargs: As for VLLMEngine.
    """

    def __init__(
        self,
        model_id: str,
        *,
        ttft_ms: float = 0.0,
        step_ms: float = 0.0,
        tokens_per_step: int = 1,
        **engine_kwargs: Any,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tw-scripted-")
        folder = write_model_folder(Path(self._folder.name) / "model", _MARKERS)
        super().__init__(model_id, folder, self._repeat, engine_kwargs)
        vocabulary = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
        self._user = next(one["id"] for one in vocabulary if one["content"] == "<|user|>")
        self._end = next(one["id"] for one in vocabulary if one["content"] == EOS)
        self._ttft_s, self._step_s, self._per_step = ttft_ms / 1000, step_ms / 1000, tokens_per_step

    def _repeat(self, request: EngineCoreRequest) -> Script:
        ids = list(request.prompt_token_ids or ())
        if self._user in ids:
            ids = ids[len(ids) - ids[::-1].index(self._user) :]
            ids = ids[: ids.index(self._end)] if self._end in ids else ids
        params = request.sampling_params
        if params is not None and params.ignore_eos and params.max_tokens and ids:
            ids = list(islice(cycle(ids), params.max_tokens))
        steps = [self._per_step] * (len(ids) // self._per_step + 1)
        return Script(ids, steps, ttft_s=self._ttft_s, step_s=self._step_s)

    async def shutdown(self) -> None:
        """Removes the model's folder too."""
        await super().shutdown()
        self._folder.cleanup()
