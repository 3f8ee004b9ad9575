"""The routed topology: a CPU deployment is the ingress; `model` in the request picks the deployment that answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from fastapi import FastAPI
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from ray import serve
from ray.serve.exceptions import BackPressureError

from tokenwire.v1 import model_pb2
from tokenwire_server import __version__, wire
from tokenwire_server.adapters import Catalogue, adapter_in, adapter_model
from tokenwire_server.backend import CallContext, contract_services
from tokenwire_server.config import load_config
from tokenwire_server.errors import StatusError
from tokenwire_server.guard import Guard
from tokenwire_server.rest import create_app
from tokenwire_server.serving.frames import ADMIN, context_of, everywhere, message_of, methods
from tokenwire_server.serving.server import check_environment, own_guard
from tokenwire_server.telemetry import configure_logging
from tokenwire_server.validation import Validator

__all__ = ["HandleBackend", "Router"]

_log = logging.getLogger(__name__)

_STATE_PERIOD_S = 1.0
"""How often the Router asks the controller which models have a replica."""


class HandleBackend:
    """A Backend over the handles of engine deployments.

    Args:
        handles: A handle for each model id.
        guard: Who may call; admission runs beside the engines.
        decode: Whether events become messages, as REST needs them; gRPC passes their bytes on.
        catalogues: LoRA adapters by model id, of the models that have some.
    """

    def __init__(
        self,
        handles: Mapping[str, Any],
        guard: Guard,
        *,
        decode: bool,
        catalogues: Mapping[str, Catalogue] = MappingProxyType({}),
    ) -> None:
        self._catalogues = catalogues
        self._guard = guard
        self._validator = Validator()
        self._decode = decode
        self._answers = {name: GetMessageClass(method.output_type) for name, method in methods().items()}
        # Bytes go as they are; pickle is for the method's name and the context.
        options = {"request_serialization": "pickle", "response_serialization": "noop"}
        self._unary = {model: h.options(method_name="call_unary", **options) for model, h in handles.items()}
        self._stream = {
            model: h.options(method_name="call_stream", stream=True, **options) for model, h in handles.items()
        }
        self._handles = handles
        self._known: dict[str, model_pb2.Model] = {}

    def authorize(self, call: CallContext) -> None:
        """See `Backend.authorize`."""
        self._guard.authorize(call)

    async def unary(self, method: str, request: Message, call: CallContext) -> Message:
        """See `Backend.unary`."""
        self._enter(method, request, call)
        if method.startswith(ADMIN):
            return await self._everywhere(method, request, call)
        if method.endswith("/ListModels"):
            return await self._list_models(call)
        if method.endswith("/GetVersion"):
            return await self._first_version(method, request, call)
        handle = self._unary[self._model_of(request)]
        data = request.SerializeToString()
        frame = await self._retried(lambda: handle.remote(method, data, context_of(call)))
        return self._answers[method].FromString(message_of(frame))

    async def stream(self, method: str, request: Message, call: CallContext) -> AsyncGenerator[Message, None]:
        """See `Backend.stream`."""
        self._enter(method, request, call)
        handle = self._stream[self._model_of(request)]
        data = request.SerializeToString()
        answer = self._answers[method]
        for attempt in (0, 1):
            sent = False
            try:
                async with aclosing(_frames(handle.remote(method, data, context_of(call)))) as frames:
                    async for frame in frames:
                        event = message_of(frame)
                        yield answer.FromString(event) if self._decode else cast(Message, wire.Ready(event))
                        sent = True
                return
            except StatusError:
                raise
            except Exception as error:
                if sent or attempt:
                    raise _lost(error) from error
                _log.warning("a replica was lost before the first token, request %s: trying another", call.request_id)

    def _enter(self, method: str, request: Message, call: CallContext) -> None:
        """What is the edge's: key, contract, deadline. The model's own rules and admission are the engine's."""
        self._guard.authorize(call)
        if method.startswith(ADMIN):
            self._guard.check_admin()
        self._validator.check(request)
        self._guard.set_deadline(call, request)

    def _model_of(self, request: Message) -> str:
        """Id of the model that a request names; the only one where it names none."""
        name = cast(str, request.model)  # type: ignore[attr-defined]  # all that come here have it
        if name in self._unary:
            return name
        if not name and len(self._unary) == 1:
            return next(iter(self._unary))
        if not name:
            known = ", ".join(sorted(self._unary))
            raise StatusError.field("model", f"must name one of the models: {known}", "REQUIRED")
        bases = [model for model in self._unary if adapter_in(name, model) is not None]
        bases += [model for model, catalogue in self._catalogues.items() if name in catalogue.names()]
        if len(bases) == 1:
            return bases[0]
        if bases:
            choices = ", ".join(f"{base}:{name}" for base in bases)
            raise StatusError.field("model", f"is an adapter of several models; name one of {choices}")
        raise StatusError.not_found("MODEL_NOT_FOUND", "model", name, self._unary)

    async def _retried(self, ask: Any) -> bytes:
        """Asks a replica; once more, of another, where the first was lost before it answered."""
        for attempt in (0, 1):
            try:
                return cast(bytes, await ask())
            except Exception as error:
                if attempt or isinstance(error, BackPressureError):
                    raise _lost(error) from error
        raise AssertionError

    async def _list_models(self, call: CallContext) -> Message:
        await asyncio.gather(*(self._learn(model, call) for model in self._unary if model not in self._known))
        models = []
        for name in sorted(self._unary):
            model = self._known.get(name, model_pb2.Model(id=name))
            adapters = self._catalogues[name].names() if name in self._catalogues else ()
            models += [model, *(adapter_model(model, adapter) for adapter in adapters)]
        return model_pb2.ListModelsResponse(models=models)

    async def _learn(self, model: str, call: CallContext) -> None:
        """Asks a model for its facts; one that has no replica just now is listed by its id alone."""
        method = "tokenwire.v1.ModelService/GetModel"
        data = model_pb2.GetModelRequest(model=model).SerializeToString()
        with suppress(Exception):
            async with asyncio.timeout(2):
                frame = await self._unary[model].remote(method, data, context_of(call))
            self._known[model] = model_pb2.GetModelResponse.FromString(message_of(frame)).model

    async def _first_version(self, method: str, request: Message, call: CallContext) -> Message:
        handle = next(iter(self._unary.values()))
        frame = await self._retried(lambda: handle.remote(method, request.SerializeToString(), context_of(call)))
        return self._answers[method].FromString(message_of(frame))

    async def _everywhere(self, method: str, request: Message, call: CallContext) -> Message:
        """An admin RPC on every replica of the models that it is about; one reply that names each."""
        named = getattr(request, "model", "")
        chosen = [self._model_of(request)] if named else list(self._handles)
        return await everywhere([self._handles[model] for model in chosen], method, request, call)


async def _frames(response: Any) -> AsyncGenerator[bytes, None]:
    """Frames of a streaming response; cancels it when it is left early."""
    ended = False
    try:
        async for frame in response:
            yield frame
        ended = True
    finally:
        if not ended:
            response.cancel()


def _lost(error: Exception) -> StatusError:
    """What the caller sees of an error of Serve's own between deployments."""
    if isinstance(error, BackPressureError):
        return StatusError.retry_later("QUEUE_FULL", "The model's queue is full.", 1.0)
    return StatusError.retry_later("NO_REPLICA", "The model's replica was lost; try again.", 1.0)


@serve.ingress()
class Router(wire.RpcMethods):
    """The ingress of the routed topology.

    Args:
        config: A ServiceConfig as plain data.
        key_digests: SHA-256 of each API key, hexadecimal.
        handles: A handle for each model id.
    """

    async def __init__(  # type: ignore[misc]
        self, config: dict[str, Any], key_digests: Sequence[str], **handles: Any
    ) -> None:
        check_environment()
        service = load_config(config)
        configure_logging(json=service.log_format == "json")
        guard = own_guard(config, key_digests)
        by_model = {
            llm.model_loading_config.model_id: handles[f"model_{number}"]
            for number, llm in enumerate(service.llm_configs)
        }
        catalogues = {
            # The engine knows which of them fit; here only names are asked.
            llm.model_loading_config.model_id: Catalogue(Path(llm.lora_config.dynamic_lora_loading_path))
            for llm in service.llm_configs
            if llm.lora_config is not None
        }
        self.rpc_backend = HandleBackend(by_model, guard, decode=False, catalogues=catalogues)
        self.max_message_bytes = service.limits.max_message_bytes
        self._cors_origins = service.cors_origins
        self._rest = HandleBackend(by_model, guard, decode=True, catalogues=catalogues)
        # Deployment names by model id, as build.py gives them.
        self._deployments = {model: f"model_{number}" for number, model in enumerate(by_model)}
        # A model that sleeps wakes for its first request, so it counts as running.
        self._sleepers = {
            llm.model_loading_config.model_id
            for llm in service.llm_configs
            if llm.deployment_config.autoscaling_config and llm.deployment_config.autoscaling_config.min_replicas == 0
        }
        self._running: set[str] = set()
        self._watching = asyncio.create_task(self._watch())

    def __serve_build_asgi_app__(self) -> FastAPI:
        """The REST shim over the handles. Serve calls it after the constructor."""
        return create_app(
            self._rest,
            version=__version__,
            ready=self._ready,
            max_body_bytes=self.max_message_bytes,
            cors_origins=self._cors_origins,
        )

    async def _watch(self) -> None:
        """Keeps up with which models have a replica."""
        while True:
            with suppress(Exception):  # the controller restarts: what was known holds until it is back
                self._running = await asyncio.to_thread(self._look)
            await asyncio.sleep(_STATE_PERIOD_S)

    def _look(self) -> set[str]:
        app = serve.status().applications[serve.get_replica_context().app_name]
        states = {name: deployment.replica_states.get("RUNNING", 0) for name, deployment in app.deployments.items()}
        return self._sleepers | {model for model, name in self._deployments.items() if states.get(name, 0) > 0}

    async def _ready(self) -> bool:
        return self._running == set(self._deployments)

    async def serving_state(self, name: str) -> bool | None:
        """See `RpcMethods.serving_state`: "" and a service need every model, a model's id that model alone."""
        if name in self._deployments:
            return name in self._running
        return await self._ready() if name in ("", *contract_services()) else None

    def health_names(self) -> Sequence[str]:
        """See `RpcMethods.health_names`."""
        return [*contract_services(), *self._deployments]
