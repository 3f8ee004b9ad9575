"""The RPC methods over one engine: guard, then validation, then the engine."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, cast

from google.protobuf.message import Message

from tokenwire.admin.v1 import admin_pb2
from tokenwire.v1 import chat_pb2, embedding_pb2, generation_pb2, model_pb2, tokenization_pb2
from tokenwire_server.adapters import adapter_model
from tokenwire_server.backend import CallContext
from tokenwire_server.engine.collect import collect_chat, collect_generate
from tokenwire_server.engine.protocol import Engine
from tokenwire_server.errors import StatusError
from tokenwire_server.guard import Guard, deadline_exceeded
from tokenwire_server.telemetry import CallLog
from tokenwire_server.validation import Validator

__all__ = ["Service"]

_ADMIN = "tokenwire.admin.v1.AdminService/"

_V1 = "tokenwire.v1."


class Service:
    """A Backend over an engine in this process.

    Args:
        engine: What answers.
        guard: Who may call and how much.
        validator: What a request must be.
        version: Of Tokenwire.
        replica: Name of this replica in admin replies.
    """

    def __init__(
        self, engine: Engine, guard: Guard, validator: Validator, *, version: str, replica: str = "replica-0"
    ) -> None:
        self._engine = engine
        self._guard = guard
        self._validator = validator
        self._version = version
        self._replica = replica
        self._started_at = time.monotonic()
        self._log = CallLog()
        self._unary: dict[str, Callable[[Any, CallContext], Awaitable[Message]]] = {
            f"{_V1}ChatService/Chat": self._chat,
            f"{_V1}GenerationService/Generate": self._generate,
            f"{_V1}EmbeddingService/Embed": self._embed,
            f"{_V1}TokenizationService/Tokenize": self._tokenize,
            f"{_V1}TokenizationService/Detokenize": self._detokenize,
            f"{_V1}TokenizationService/RenderChat": self._render_chat,
            f"{_V1}TokenizationService/GetTokenizerInfo": self._tokenizer_info,
            f"{_V1}ModelService/ListModels": self._list_models,
            f"{_V1}ModelService/GetModel": self._get_model,
            f"{_V1}ModelService/GetVersion": self._get_version,
            f"{_ADMIN}GetServerInfo": self._server_info,
            f"{_ADMIN}GetLoad": self._load,
            f"{_ADMIN}LoadAdapter": self._load_adapter,
            f"{_ADMIN}UnloadAdapter": self._unload_adapter,
            f"{_ADMIN}ListAdapters": self._list_adapters,
            f"{_ADMIN}ResetPrefixCache": self._reset_prefix_cache,
            f"{_ADMIN}CancelRequests": self._cancel_requests,
        }

    def authorize(self, call: CallContext) -> None:
        """See `Backend.authorize`."""
        self._guard.authorize(call)

    @property
    def serving(self) -> bool:
        """Whether a request would be served."""
        return self._engine.model.HasField("create_time") and not self._engine.errored

    def drain(self) -> None:
        """Lets no new inference request in."""
        self._guard.drain()

    async def unary(self, method: str, request: Message, call: CallContext) -> Message:
        """See `Backend.unary`."""
        with self._log.call(method, call):
            self.enter(method, request, call)
            handler = self._unary.get(method)
            if handler is None:
                raise StatusError.unsupported(method.rpartition("/")[2], "is not served yet")
            try:
                async with asyncio.timeout(call.remaining()) as allowed:
                    return await handler(request, call)
            except TimeoutError:
                if allowed.expired():
                    raise deadline_exceeded() from None
                raise

    async def stream(self, method: str, request: Message, call: CallContext) -> AsyncGenerator[Message, None]:
        """See `Backend.stream`."""
        with self._log.call(method, call):
            self.enter(method, request, call)
            self._check_inference(request)
            async with self._guard.admit(call):
                if isinstance(request, chat_pb2.ChatRequest):
                    events: AsyncGenerator[Any, None] = self._engine.chat(request, call)
                else:
                    events = self._engine.generate(cast(generation_pb2.GenerateRequest, request), call)
                async with aclosing(_until(events, call)) as bounded:
                    async for event in bounded:
                        yield event

    def enter(self, method: str, request: Message, call: CallContext) -> None:
        """What every call passes before it is served: key, contract, deadline, model.

        Raises:
            StatusError: It does not pass.
        """
        self._guard.authorize(call)
        if method.startswith(_ADMIN):
            self._guard.check_admin()
        self._validator.check(request)
        self._guard.set_deadline(call, request)
        if "request_id" in request.DESCRIPTOR.fields_by_name:
            call.request_id = request.request_id or call.request_id  # type: ignore[attr-defined]
        self._check_model(method, request)

    def _check_model(self, method: str, request: Message) -> None:
        """A request that names a model must name this one; a task that it does not do is WRONG_TASK."""
        model = self._engine.model
        if "model" in request.DESCRIPTOR.fields_by_name:
            name = cast(str, request.model)  # type: ignore[attr-defined]
            adapter = self._engine.adapter_named(name)
            given = getattr(request, "adapter", "")
            if adapter is not None and given not in ("", adapter) and not method.startswith(_ADMIN):
                raise StatusError.field("adapter", f"is another one than `model` names, `{adapter}`")
            if name and name != model.id and adapter is None:
                raise StatusError.not_found("MODEL_NOT_FOUND", "model", name, [model.id])
        embeds = isinstance(request, embedding_pb2.EmbedRequest)
        generates = isinstance(request, chat_pb2.ChatRequest | generation_pb2.GenerateRequest)
        if embeds and model.task == model_pb2.MODEL_TASK_GENERATE:
            raise _wrong_task(model.id, "generates; it does not embed")
        if generates and model.task == model_pb2.MODEL_TASK_EMBED:
            raise _wrong_task(model.id, "embeds; it does not generate")

    def _check_inference(self, request: Message) -> None:
        if self._engine.errored:
            raise StatusError.retry_later("ENGINE_DEAD", "The engine has died and is being restarted.", 5.0)
        self._validator.check_model(request, self._engine.limits)

    async def _chat(self, request: chat_pb2.ChatRequest, call: CallContext) -> Message:
        self._check_inference(request)
        async with self._guard.admit(call), aclosing(self._engine.chat(request, call, stream=False)) as events:
            return await collect_chat(events)

    async def _generate(self, request: generation_pb2.GenerateRequest, call: CallContext) -> Message:
        self._check_inference(request)
        async with self._guard.admit(call), aclosing(self._engine.generate(request, call, stream=False)) as events:
            return await collect_generate(events)

    async def _embed(self, request: embedding_pb2.EmbedRequest, call: CallContext) -> Message:
        self._check_inference(request)
        async with self._guard.admit(call):
            return await self._engine.embed(request, call)

    async def _tokenize(self, request: tokenization_pb2.TokenizeRequest, _call: CallContext) -> Message:
        return await self._engine.tokenize(request)

    async def _detokenize(self, request: tokenization_pb2.DetokenizeRequest, _call: CallContext) -> Message:
        self._check_inference(request)
        return await self._engine.detokenize(request)

    async def _render_chat(self, request: tokenization_pb2.RenderChatRequest, _call: CallContext) -> Message:
        self._check_inference(request)
        return await self._engine.render_chat(request)

    async def _tokenizer_info(self, _request: tokenization_pb2.GetTokenizerInfoRequest, _call: CallContext) -> Message:
        return await self._engine.tokenizer_info()

    async def _list_models(self, request: model_pb2.ListModelsRequest, _call: CallContext) -> Message:
        if request.page_token:
            raise StatusError.field("page_token", "is not one that this server gave")
        adapters = await asyncio.to_thread(self._engine.adapter_names)
        return model_pb2.ListModelsResponse(
            models=[self._engine.model, *(adapter_model(self._engine.model, one) for one in adapters)]
        )

    async def _get_model(self, request: model_pb2.GetModelRequest, _call: CallContext) -> Message:
        adapter = self._engine.adapter_named(request.model)
        if adapter is None:
            return model_pb2.GetModelResponse(model=self._engine.model)
        known = self._engine.adapter_names()
        if adapter not in known:
            raise StatusError.not_found("ADAPTER_NOT_FOUND", "adapter", adapter, known)
        return model_pb2.GetModelResponse(model=adapter_model(self._engine.model, adapter))

    async def _get_version(self, _request: model_pb2.GetVersionRequest, _call: CallContext) -> Message:
        return model_pb2.GetVersionResponse(tokenwire=self._version, engine=self._engine.version, api="tokenwire.v1")

    async def _server_info(self, _request: admin_pb2.GetServerInfoRequest, _call: CallContext) -> Message:
        info = admin_pb2.ReplicaInfo(
            replica=self._replica,
            model=self._engine.model.id,
            tokenwire_version=self._version,
            engine_version=self._engine.version,
            process_id=os.getpid(),
        )
        info.uptime.FromSeconds(int(time.monotonic() - self._started_at))
        return admin_pb2.GetServerInfoResponse(replicas=[info])

    async def _load(self, _request: admin_pb2.GetLoadRequest, _call: CallContext) -> Message:
        load = self._engine.load()
        load.replica = self._replica
        load.open_count = self._guard.open_count
        load.queued_count = self._guard.queued_count
        return admin_pb2.GetLoadResponse(replicas=[load])

    async def _load_adapter(self, request: admin_pb2.LoadAdapterRequest, _call: CallContext) -> Message:
        await self._engine.load_adapter(request.adapter)
        return admin_pb2.LoadAdapterResponse(replicas=[self._done(1)])

    async def _unload_adapter(self, request: admin_pb2.UnloadAdapterRequest, _call: CallContext) -> Message:
        return admin_pb2.UnloadAdapterResponse(
            replicas=[self._done(int(await self._engine.unload_adapter(request.adapter)))]
        )

    async def _list_adapters(self, _request: admin_pb2.ListAdaptersRequest, _call: CallContext) -> Message:
        return admin_pb2.ListAdaptersResponse(adapters=await self._engine.adapters(self._replica))

    async def _reset_prefix_cache(self, _request: admin_pb2.ResetPrefixCacheRequest, _call: CallContext) -> Message:
        await self._engine.reset_prefix_cache()
        return admin_pb2.ResetPrefixCacheResponse(replicas=[self._done()])

    async def _cancel_requests(self, request: admin_pb2.CancelRequestsRequest, _call: CallContext) -> Message:
        count = await self._engine.cancel(list(request.request_ids))
        return admin_pb2.CancelRequestsResponse(replicas=[self._done(count)])

    def _done(self, affected: int = 0) -> admin_pb2.ReplicaResult:
        return admin_pb2.ReplicaResult(replica=self._replica, ok=True, affected_count=affected)


def _wrong_task(model: str, does: str) -> StatusError:
    return StatusError.of("WRONG_TASK", f"The model `{model}` {does}.", metadata={"model": model})


async def _until(events: AsyncGenerator[Any, None], call: CallContext) -> AsyncGenerator[Any, None]:
    """Passes events on until the call's deadline, then aborts and raises DEADLINE_EXCEEDED.

    One timer for the stream, not one for each event: it cancels the wait for the next event where there is one, and
    otherwise (the reader is slow) the next event is not sent.
    """
    expired = False
    waiting: asyncio.Task[Any] | None = None

    def expire() -> None:
        nonlocal expired
        expired = True
        if waiting is not None:
            waiting.cancel()

    remaining = call.remaining()
    timer = asyncio.get_running_loop().call_later(remaining, expire) if remaining is not None else None
    try:
        async with aclosing(events):
            while True:
                waiting = asyncio.current_task()
                try:
                    event = await anext(events)
                except StopAsyncIteration:
                    return
                except asyncio.CancelledError:
                    if expired and waiting is not None and waiting.uncancel() == 0:
                        raise deadline_exceeded() from None
                    raise
                finally:
                    waiting = None
                yield event
                if expired:
                    raise deadline_exceeded()
    finally:
        if timer is not None:
            timer.cancel()
