"""VLLMEngine: the Engine protocol on vLLM's AsyncLLM."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import vllm
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.envs import enable_envs_cache
from vllm.exceptions import GracefulHTTPError as VLLMOverloadError
from vllm.exceptions import VLLMClientError, VLLMError, VLLMValidationError
from vllm.lora.request import LoRARequest
from vllm.platforms import current_platform
from vllm.pooling_params import PoolingParams
from vllm.renderers import ChatParams, TokenizeParams
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.metrics.loggers import StatLoggerBase

from tokenwire.admin.v1 import admin_pb2
from tokenwire.v1 import chat_pb2, embedding_pb2, generation_pb2, model_pb2, sampling_pb2, tokenization_pb2
from tokenwire_server.adapters import Catalogue, adapter_in
from tokenwire_server.backend import CallContext
from tokenwire_server.engine.arguments import check_engine_kwargs
from tokenwire_server.engine.protocol import EngineLimits
from tokenwire_server.engine.vllm_chat import ChatRules, ChatTurn, ChatWriter, chat_params, conversation
from tokenwire_server.engine.vllm_lora import Adapters, lora_arguments
from tokenwire_server.engine.vllm_params import (
    EngineRequestError,
    Event,
    EventWriter,
    greedy_copies,
    sampling_params,
    structured_outputs,
    token_bytes,
)
from tokenwire_server.errors import StartError, StatusError

__all__ = ["VLLMEngine"]

_log = logging.getLogger(__name__)

_Inference = chat_pb2.ChatRequest | generation_pb2.GenerateRequest

_CPU_WORKER = "tokenwire_server.engine.vllm_cpu_worker.MendedCPUWorker"

_UNSUPPORTED = frozenset({"adapter", "messages.content.image", "messages.content.audio", "messages.content.file"})

_WARM_UP: Sequence[Mapping[str, Any]] = (
    # On a CPU the first request with logprobs took 13 s, the first with penalties or top-p a second or two.
    {"temperature": 0.0, "logprobs": 2, "prompt_logprobs": 1},
    {"temperature": 1.0, "top_p": 0.9, "top_k": 20, "min_p": 0.1, "seed": 1, "frequency_penalty": 0.1},
)


class _LastStats(StatLoggerBase):  # type: ignore[misc]  # vLLM is not typed here
    """Keeps the scheduler's last report: what runs, what waits, how full the cache is."""

    running = 0
    waiting = 0
    kv_cache_usage = 0.0

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        """As vLLM makes its loggers."""

    def record(
        self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
    ) -> None:
        """Called by vLLM after each step."""
        if scheduler_stats is not None:
            self.running = scheduler_stats.num_running_reqs
            self.waiting = scheduler_stats.num_waiting_reqs + scheduler_stats.num_skipped_waiting_reqs
            self.kv_cache_usage = scheduler_stats.kv_cache_usage

    def log_engine_initialized(self) -> None:
        """Nothing to log: the CLI shows start-up."""


class VLLMEngine:
    """One model on vLLM.

    Args:
        model_id: What requests name it by.
        model_source: A folder, or a name on the Hugging Face hub.
        engine_kwargs: Arguments of vLLM's `AsyncEngineArgs`.
        lora_folder: Folder of LoRA adapters; None serves none.
        max_adapters: How many adapters are held.
    """

    def __init__(
        self,
        model_id: str,
        model_source: str,
        engine_kwargs: Mapping[str, Any],
        *,
        lora_folder: Path | None = None,
        max_adapters: int = 16,
    ) -> None:
        self._model = model_pb2.Model(id=model_id)
        self._source = model_source
        self._kwargs = dict(engine_kwargs)
        # The two that are flags of vLLM's own server and not of its engine. A parser that is named is meant to be used.
        self._tool_parser: str | None = self._kwargs.pop("tool_call_parser", None)
        self._kwargs.pop("enable_auto_tool_choice", None)
        self._lora_folder = lora_folder
        self._max_adapters = max_adapters
        if lora_folder is not None:
            self._kwargs = lora_arguments(max_adapters, self._kwargs)
        self._catalogue: Catalogue | None = None
        self._adapters: Adapters | None = None
        self._client: AsyncLLM | None = None
        self._limits: EngineLimits | None = None
        self._defaults: Mapping[str, Any] = {}
        self._stats: list[_LastStats] = []
        # Engine ids of running requests by the caller's request id: what CancelRequests looks up.
        self._running: dict[str, str] = {}

    @property
    def model(self) -> model_pb2.Model:
        """Facts of the model."""
        return self._model

    @property
    def version(self) -> str:
        """Name and version of the engine."""
        return f"vllm {vllm.__version__}"

    @property
    def limits(self) -> EngineLimits:
        """What the model allows."""
        if self._limits is None:
            raise StatusError.retry_later("ENGINE_NOT_READY", "The engine is still starting.", 1.0)
        return self._limits

    @property
    def errored(self) -> bool:
        """Whether the engine core has died."""
        return self._client is not None and self._client.errored

    async def start(self) -> None:
        """Loads the model and generates one token.

        Raises:
            StartError: An argument that vLLM does not know or refuses, or a model that does not load.
        """
        args = self._engine_args()
        try:
            # In a thread: loading takes seconds to minutes, and health must answer meanwhile.
            self._client = await asyncio.to_thread(self._build_client, args)
        except Exception as error:
            _log.exception("vLLM did not start")
            raise StartError(_one_line(error)) from error
        await self._learn(self._client)
        await self._warm_up(self._client)
        # vLLM reads its variables anew on every use until told that they stay: 10 % of the loop at 256 streams.
        enable_envs_cache()
        self._model.create_time.GetCurrentTime()

    def _build_client(self, args: AsyncEngineArgs) -> AsyncLLM:
        return AsyncLLM.from_engine_args(args, stat_loggers=[self._stat_logger])

    def _engine_args(self) -> AsyncEngineArgs:
        check_engine_kwargs("vLLM", self._kwargs)
        kwargs = {"served_model_name": [self._model.id], **self._kwargs, "model": self._source}
        if current_platform.is_cpu():
            kwargs.setdefault("worker_cls", _CPU_WORKER)
        try:
            return AsyncEngineArgs(**kwargs)
        except (TypeError, ValueError, VLLMError) as error:
            raise StartError(f"engine_kwargs: {_one_line(error)}") from error

    def _stat_logger(self, vllm_config: Any, engine_index: int = 0) -> _LastStats:
        self._stats.append(_LastStats(vllm_config, engine_index))
        return self._stats[-1]

    async def _learn(self, client: AsyncLLM) -> None:
        config = client.model_config
        tasks = await client.get_supported_tasks()
        self._model.max_model_len = config.max_model_len
        self._model.vocab_size = config.get_vocab_size()
        if "generate" in tasks:
            self._model.task = model_pb2.MODEL_TASK_GENERATE
            self._model.chat = bool(getattr(client.get_tokenizer(), "chat_template", None))
        elif "embed" in tasks:
            self._model.task = model_pb2.MODEL_TASK_EMBED
            self._model.embedding_dimensions = config.embedding_size
        self._defaults = config.get_diff_sampling_param()
        tokenizer = client.get_tokenizer()
        self._token_bytes = token_bytes(tokenizer)
        if self._model.chat:
            self._chat_rules = ChatRules(
                tokenizer,
                config,
                tool_parser=self._tool_parser,
                reasoning_parser=self._kwargs.get("reasoning_parser"),
            )
        self._limits = EngineLimits(
            max_model_len=config.max_model_len,
            vocab_size=config.get_vocab_size(),
            max_logprobs=config.max_logprobs,
            unsupported=_UNSUPPORTED if self._lora_folder is None else _UNSUPPORTED - {"adapter"},
        )
        if self._lora_folder is not None and client.vllm_config.lora_config is not None:
            self._catalogue = Catalogue(
                self._lora_folder,
                max_rank=client.vllm_config.lora_config.max_lora_rank,
                hidden_size=config.get_hidden_size(),
                layers=config.get_total_num_hidden_layers(),
            )
            self._adapters = Adapters(client, self._catalogue, self._max_adapters)

    async def _warm_up(self, client: AsyncLLM) -> None:
        """Takes the paths that compile something when they are first taken, so that no caller waits for it."""
        (prompt,) = await client.renderer.render_cmpl_async([{"prompt": "Warm"}])
        if self._model.task == model_pb2.MODEL_TASK_EMBED:
            async for _ in client.encode(prompt, PoolingParams(task="embed"), "warm-up"):
                pass
            return
        if self._model.chat:
            client.renderer.warmup(ChatParams())
        for knobs in _WARM_UP:
            async for _ in client.generate(prompt, SamplingParams(max_tokens=2, **knobs), "warm-up"):
                pass

    async def shutdown(self) -> None:
        """Ends the engine core and waits for it."""
        client, self._client = self._client, None
        if client is not None:
            await asyncio.to_thread(client.shutdown)

    @property
    def _engine(self) -> AsyncLLM:
        if self._client is None:
            raise StatusError.retry_later("ENGINE_NOT_READY", "The engine is not running.", 1.0)
        return self._client

    async def generate(
        self, request: generation_pb2.GenerateRequest, call: CallContext, *, stream: bool = True
    ) -> AsyncGenerator[generation_pb2.StreamGenerateResponse, None]:
        """See `Engine.generate`."""
        params = TokenizeParams(**self._tokenize(request.sampling, add_special_tokens=True))
        raw = (
            {"prompt": request.text}
            if request.WhichOneof("prompt") == "text"
            else {"prompt_token_ids": list(request.token_ids.ids)}
        )
        (prompt,) = await self._rendered(self._engine.renderer.render_cmpl_async([raw], params), _prompt_field(request))
        writer = EventWriter(
            generation_pb2.StreamGenerateResponse, echo=self._echo(request, prompt), **self._writing(request, call)
        )
        turn = ChatTurn(structured=structured_outputs(request.structured_output))
        events = self._run(writer, turn, request, prompt, call, stream)
        async with aclosing(events):
            async for event in events:
                yield event

    async def chat(
        self, request: chat_pb2.ChatRequest, call: CallContext, *, stream: bool = True
    ) -> AsyncGenerator[chat_pb2.StreamChatResponse, None]:
        """See `Engine.chat`."""
        params = TokenizeParams(**self._tokenize(request.sampling, add_special_tokens=False))
        how = chat_params(request)
        turn = self._chat_rules.turn(request, how)
        stream = stream or turn.forced
        prompt = await self._render_conversation(request, how, params)
        writing = self._writing(request, call)
        writer: EventWriter[chat_pb2.StreamChatResponse] = (
            EventWriter(chat_pb2.StreamChatResponse, **writing)
            if turn.make_parser is None
            else ChatWriter(turn, turn.make_parser, stream=stream, **writing)
        )
        events = self._run(writer, turn, request, prompt, call, stream)
        async with aclosing(events):
            async for event in events:
                yield event

    def _writing(self, request: _Inference, call: CallContext) -> dict[str, Any]:
        """What every writer is told."""
        return {
            "model": self._reply_model(request),
            "call": call,
            "output": request.output,
            "copies": greedy_copies(request.sampling, self._defaults),
            "to_bytes": self._token_bytes,
        }

    def _reply_model(self, request: _Inference) -> str:
        """As the request named it, but for an adapter that it named apart from the model."""
        return f"{self._model.id}:{request.adapter}" if request.adapter else request.model or self._model.id

    @asynccontextmanager
    async def _adapter(self, request: _Inference) -> AsyncIterator[LoRARequest | None]:
        """The adapter of a request for as long as it runs."""
        name = request.adapter or self.adapter_named(request.model)
        if not name or self._adapters is None:
            yield None
            return
        async with self._adapters.use(name) as adapter:
            yield adapter

    def _echo(self, request: generation_pb2.GenerateRequest, prompt: Any) -> str:
        if not request.output.echo:
            return ""
        return request.text or str(self._engine.get_tokenizer().decode(prompt["prompt_token_ids"]))

    async def _run(
        self,
        writer: EventWriter[Event],
        turn: ChatTurn,
        request: _Inference,
        prompt: Any,
        call: CallContext,
        stream: bool,
    ) -> AsyncGenerator[Event, None]:
        """Runs a rendered prompt; the one place where requests enter vLLM and are aborted."""
        engine = self._engine
        prompt_ids = prompt["prompt_token_ids"]
        params = sampling_params(
            request.sampling,
            request.output,
            defaults=self._defaults,
            max_tokens=self._max_tokens(request.sampling, len(prompt_ids), _prompt_field(request)),
            stream=stream,
            structured=turn.structured,
            overrides=turn.knobs,
        )
        if request.cache_salt:
            prompt["cache_salt"] = request.cache_salt
        engine_id = f"{call.request_id}-{secrets.token_hex(4)}"
        self._running[call.request_id] = engine_id
        finished = False
        try:
            async with self._adapter(request) as adapter:
                outputs = engine.generate(
                    prompt,
                    params,
                    engine_id,
                    lora_request=adapter,
                    priority=request.priority,
                    session_id=request.session_id or None,
                    reasoning_ended=turn.reasoning_ended(prompt_ids),
                    reasoning_parser_kwargs=turn.parser_kwargs,
                )
                async with aclosing(outputs):
                    async for out in outputs:
                        finished = out.finished
                        for event in writer.write(out):
                            yield event
            yield writer.end()
        except EngineRequestError:
            if turn.structured is None:
                raise StatusError.internal(call.request_id) from None
            raise StatusError.field(_grammar_field(request), "leaves no output that conforms") from None
        except VLLMError as error:
            raise self._translated(error, call, _grammar_field(request)) from error
        finally:
            self._running.pop(call.request_id, None)
            if not finished:
                # Unconditional: vLLM 0.32 forgets a request that is cancelled while it is being added (vllm#57061).
                # Shielded: a second cancel must not stop it.
                await asyncio.shield(engine.abort(engine_id))

    def _max_tokens(self, sampling: sampling_pb2.SamplingParams, prompt_tokens: int, field: str) -> int:
        room = self.limits.max_model_len - prompt_tokens
        asked = sampling.max_tokens if sampling.HasField("max_tokens") else 1
        if prompt_tokens == 0:
            raise StatusError.field(field, "must be at least one token", "EMPTY")
        if asked > room:
            raise _too_long(self.limits.max_model_len, prompt_tokens, asked, field)
        if sampling.HasField("max_tokens"):
            return asked
        return min(room, int(self._defaults.get("max_tokens", room)))

    def _tokenize(self, sampling: sampling_pb2.SamplingParams, *, add_special_tokens: bool) -> dict[str, Any]:
        kwargs: dict[str, Any] = {
            "max_total_tokens": self.limits.max_model_len,
            "add_special_tokens": add_special_tokens,
        }
        if sampling.HasField("truncate_prompt_tokens"):
            kwargs["truncate_prompt_tokens"] = min(sampling.truncate_prompt_tokens, self.limits.max_model_len)
            kwargs["truncation_side"] = "left"
        return kwargs

    async def _render_conversation(
        self,
        request: chat_pb2.ChatRequest | tokenization_pb2.RenderChatRequest,
        how: ChatParams,
        params: TokenizeParams,
    ) -> Any:
        if not self._model.chat:
            text = f"The model `{self._model.id}` has no chat template; use GenerationService."
            raise StatusError.of("WRONG_TASK", text, metadata={"model": self._model.id})
        _, (prompt,) = await self._rendered(
            self._engine.renderer.render_chat_async([conversation(request)], how, params)
        )
        return prompt

    async def _rendered(self, rendering: Any, field: str = "messages") -> Any:
        """Awaits vLLM's renderer; says what it refuses in our words, of `field` where vLLM names none."""
        try:
            return await rendering
        except VLLMValidationError as error:
            if error.parameter in ("input_tokens", "input_text"):
                size = error.value if error.parameter == "input_tokens" else None
                raise _too_long(self.limits.max_model_len, size, 1, field) from error
            raise StatusError.field(_field_of(error.parameter) or field, "is not accepted by the model") from error
        except (VLLMClientError, ValueError, TypeError) as error:
            _log.info("the chat template refused a conversation: %s", type(error).__name__)
            raise StatusError.field(
                "messages", "the model's chat template does not accept this conversation"
            ) from error

    def _translated(self, error: VLLMError, call: CallContext, suspect: str = "") -> StatusError:
        """What the caller sees of an engine's error. `suspect` is the field at fault where vLLM names none."""
        if isinstance(error, EngineDeadError):
            return StatusError.retry_later("ENGINE_DEAD", "The engine has died and is being restarted.", 5.0)
        if isinstance(error, VLLMOverloadError):
            return StatusError.retry_later("QUEUE_FULL", "The engine's queue is full.", 1.0)
        if isinstance(error, VLLMValidationError):
            field = _field_of(error.parameter) or suspect
            return StatusError.field(field, "is malformed, or uses what the engine does not support")
        if isinstance(error, VLLMClientError):
            return StatusError.field(suspect, "is malformed, or uses what the engine does not support")
        _log.error("request %s failed in the engine", call.request_id, exc_info=error)
        return StatusError.internal(call.request_id)

    async def embed(self, request: embedding_pb2.EmbedRequest, call: CallContext) -> embedding_pb2.EmbedResponse:
        """See `Engine.embed`."""
        whole = self._model.embedding_dimensions
        if request.HasField("dimensions") and request.dimensions != whole:
            if not self._engine.model_config.is_matryoshka:
                raise StatusError.field("dimensions", f"must be {whole}: this model's vectors cannot be cut")
            if request.dimensions > whole:
                raise StatusError.field("dimensions", f"must be less than or equal to {whole}", "ABOVE_MAX")
        kwargs: dict[str, Any] = {"max_total_tokens": self.limits.max_model_len}
        if request.HasField("truncate_prompt_tokens"):
            kwargs["truncate_prompt_tokens"] = min(request.truncate_prompt_tokens, self.limits.max_model_len)
            kwargs["truncation_side"] = "left"
        raw = [
            {"prompt": one.text} if one.WhichOneof("input") == "text" else {"prompt_token_ids": list(one.token_ids.ids)}
            for one in request.inputs
        ]
        prompts = await self._rendered(self._engine.renderer.render_cmpl_async(raw, TokenizeParams(**kwargs)), "inputs")
        response = embedding_pb2.EmbedResponse(request_id=call.request_id, model=self._model.id)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._embed_one(prompt, request, call)) for prompt in prompts]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # all inputs fail alike: one answer is enough
        for index, (prompt, task) in enumerate(zip(prompts, tasks, strict=True)):
            count = len(prompt["prompt_token_ids"])
            response.embeddings.add(index=index, values=task.result(), prompt_token_count=count)
            response.usage.prompt_token_count += count
        response.usage.total_token_count = response.usage.prompt_token_count
        return response

    async def _embed_one(self, prompt: Any, request: embedding_pb2.EmbedRequest, call: CallContext) -> list[float]:
        engine = self._engine
        engine_id = f"{call.request_id}-{secrets.token_hex(4)}"
        cut = request.HasField("dimensions") and request.dimensions != self._model.embedding_dimensions
        dimensions = request.dimensions if cut else None
        params = PoolingParams(task="embed", dimensions=dimensions)
        finished = False
        try:
            outputs = engine.encode(prompt, params, engine_id, priority=request.priority)
            async with aclosing(outputs):
                async for out in outputs:
                    finished = out.finished
                    values: list[float] = out.outputs.data.tolist()
            return values
        except VLLMError as error:
            raise self._translated(error, call) from error
        finally:
            if not finished:
                await asyncio.shield(engine.abort(engine_id))

    async def tokenize(self, request: tokenization_pb2.TokenizeRequest) -> tokenization_pb2.TokenizeResponse:
        """See `Engine.tokenize`."""
        tokenizer = self._engine.get_tokenizer()
        special = not request.HasField("add_special_tokens") or request.add_special_tokens
        ids = await asyncio.to_thread(tokenizer.encode, request.text, add_special_tokens=special)
        response = tokenization_pb2.TokenizeResponse(token_ids=ids, max_model_len=self.limits.max_model_len)
        if request.return_tokens:
            response.tokens.extend(tokenizer.convert_ids_to_tokens(ids))
        return response

    async def detokenize(self, request: tokenization_pb2.DetokenizeRequest) -> tokenization_pb2.DetokenizeResponse:
        """See `Engine.detokenize`."""
        tokenizer = self._engine.get_tokenizer()
        text = await asyncio.to_thread(
            tokenizer.decode, list(request.token_ids), skip_special_tokens=request.skip_special_tokens
        )
        return tokenization_pb2.DetokenizeResponse(text=text)

    async def render_chat(self, request: tokenization_pb2.RenderChatRequest) -> tokenization_pb2.RenderChatResponse:
        """See `Engine.render_chat`."""
        params = TokenizeParams(max_total_tokens=self.limits.max_model_len, add_special_tokens=False)
        prompt = await self._render_conversation(request, chat_params(request), params)
        ids = prompt["prompt_token_ids"]
        text = prompt.get("prompt") or self._engine.get_tokenizer().decode(ids)
        return tokenization_pb2.RenderChatResponse(text=text, token_ids=ids, max_model_len=self.limits.max_model_len)

    async def tokenizer_info(self) -> tokenization_pb2.GetTokenizerInfoResponse:
        """See `Engine.tokenizer_info`."""
        tokenizer: Any = self._engine.get_tokenizer()
        special = {k: str(v) for k, v in (getattr(tokenizer, "special_tokens_map", None) or {}).items()}
        template = getattr(tokenizer, "chat_template", None)
        eos = getattr(tokenizer, "eos_token_id", None)
        return tokenization_pb2.GetTokenizerInfoResponse(
            tokenizer_class=type(tokenizer).__name__,
            vocab_size=self.limits.vocab_size,
            max_model_len=self.limits.max_model_len,
            special_tokens=special,
            eos_token_ids=[eos] if isinstance(eos, int) else [],
            chat_template=template if isinstance(template, str) else "",
        )

    def adapter_names(self) -> list[str]:
        """See `Engine.adapter_names`."""
        return self._catalogue.names() if self._catalogue is not None else []

    def adapter_named(self, name: str) -> str | None:
        """See `Engine.adapter_named`."""
        if self._catalogue is None or not name or name == self._model.id:
            return None
        inner = adapter_in(name, self._model.id)
        return inner if inner is not None else name if name in self._catalogue.names() else None

    async def load_adapter(self, name: str) -> None:
        """See `Engine.load_adapter`."""
        await self._all_adapters.load(name)

    async def unload_adapter(self, name: str) -> bool:
        """See `Engine.unload_adapter`."""
        return await self._all_adapters.unload(name)

    async def adapters(self, replica: str) -> list[admin_pb2.Adapter]:
        """See `Engine.adapters`."""
        if self._adapters is None or self._catalogue is None:
            return []
        held = await self._adapters.held()
        found = []
        for name in await asyncio.to_thread(self._catalogue.names):
            adapter = admin_pb2.Adapter(name=name, model=self._model.id, replicas=[replica] if name in held else ())
            with suppress(StatusError):  # a broken one is listed all the same
                adapter.rank = (await asyncio.to_thread(self._catalogue.find, name)).rank
            found.append(adapter)
        return found

    @property
    def _all_adapters(self) -> Adapters:
        if self._adapters is None:
            raise StatusError.unsupported("adapter", "needs lora_config in the model's configuration")
        return self._adapters

    def load(self) -> admin_pb2.ReplicaLoad:
        """See `Engine.load`."""
        return admin_pb2.ReplicaLoad(
            model=self._model.id,
            running_count=sum(stats.running for stats in self._stats),
            waiting_count=sum(stats.waiting for stats in self._stats),
            kv_cache_usage=max((stats.kv_cache_usage for stats in self._stats), default=0.0),
        )

    async def reset_prefix_cache(self) -> None:
        """See `Engine.reset_prefix_cache`."""
        await self._engine.reset_prefix_cache()

    async def cancel(self, request_ids: Sequence[str]) -> int:
        """See `Engine.cancel`."""
        engine_ids = [self._running[one] for one in request_ids if one in self._running]
        if engine_ids:
            await self._engine.abort(engine_ids)
        return len(engine_ids)


def _grammar_field(request: _Inference) -> str:
    """Path of the field that asks for a grammar, or ""."""
    form = request.structured_output.WhichOneof("form")
    if form:
        return f"structured_output.{form}"
    return "tool_choice" if isinstance(request, chat_pb2.ChatRequest) and request.HasField("tool_choice") else ""


def _field_of(parameter: str | None) -> str:
    """Path of the field that vLLM calls `parameter`."""
    if parameter is None:
        return ""
    if parameter in sampling_pb2.SamplingParams.DESCRIPTOR.fields_by_name:
        return f"sampling.{parameter}"
    if parameter in sampling_pb2.OutputOptions.DESCRIPTOR.fields_by_name:
        return f"output.{parameter}"
    return parameter if parameter.isidentifier() else ""


def _prompt_field(request: _Inference) -> str:
    """Path of the field that is the prompt."""
    return "messages" if isinstance(request, chat_pb2.ChatRequest) else request.WhichOneof("prompt") or "prompt"


def _too_long(limit: int, prompt_tokens: int | None, output_tokens: int, field: str) -> StatusError:
    asked = f"{prompt_tokens} in the prompt" if prompt_tokens is not None else "more in the prompt alone"
    text = (
        f"This model's maximum context length is {limit} tokens. However, you requested {asked} "
        f"and {output_tokens} for the output. Please reduce the length of the prompt or of the output."
    )
    metadata = {"maxModelLen": str(limit), "outputTokens": str(output_tokens)}
    if prompt_tokens is not None:
        metadata["promptTokens"] = str(prompt_tokens)
    return StatusError.too_long(field, text, metadata)


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
