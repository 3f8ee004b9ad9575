"""The engine deployment: an engine and both doors in one replica, or behind a Router."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from google.protobuf.message import Message
from ray import serve
from ray.serve._private import constants as serve_constants

from tokenwire_server import __version__, wire
from tokenwire_server.backend import CallContext, contract_services
from tokenwire_server.config import LLMConfig, load_config
from tokenwire_server.engine.echo import EchoEngine
from tokenwire_server.engine.protocol import Engine
from tokenwire_server.errors import StartError
from tokenwire_server.guard import Guard, GuardLimits
from tokenwire_server.rest import create_app
from tokenwire_server.serve_env import ESSENTIAL
from tokenwire_server.service import Service
from tokenwire_server.serving.frames import ADMIN, Frames, everywhere
from tokenwire_server.serving.progress import Progress
from tokenwire_server.telemetry import configure_logging
from tokenwire_server.validation import Validator

__all__ = ["LLMServer", "check_environment", "own_guard"]

_log = logging.getLogger(__name__)


def _engine(llm: LLMConfig) -> Engine:
    loading = llm.model_loading_config
    if llm.llm_engine == "echo":
        return EchoEngine(loading.model_id, **llm.engine_kwargs)
    try:
        # Imported here alone: with it come torch and seconds, which an echo replica and the driver do without.
        from tokenwire_server.engine.vllm_engine import VLLMEngine
        from tokenwire_server.engine.vllm_scripted import RepeatingEngine
    except ModuleNotFoundError as error:
        if error.name not in ("vllm", "torch"):
            raise
        text = (
            f"{error.name} is not installed: pip install 'tokenwire[cpu]', or 'tokenwire[gpu]' on a machine with a GPU"
        )
        raise StartError(text) from None
    if llm.llm_engine == "scripted":
        return RepeatingEngine(loading.model_id, **llm.engine_kwargs)
    lora = llm.lora_config
    if lora is None:
        return VLLMEngine(loading.model_id, loading.source, llm.engine_kwargs)
    return VLLMEngine(
        loading.model_id,
        loading.source,
        llm.engine_kwargs,
        lora_folder=Path(lora.dynamic_lora_loading_path),
        max_adapters=lora.max_num_adapters_per_replica,
    )


def check_environment() -> None:
    """A node without Serve's variables would serve a tenth as fast and lose cancels: it does not start instead."""
    if not serve_constants.RAY_SERVE_ENABLE_HA_PROXY:
        lines = " ".join(f"{name}={value}" for name, value in ESSENTIAL.items())
        raise StartError(
            "Serve runs without HAProxy on this node. Start Ray with these variables in the environment of every "
            f"node: {lines}"
        )


def own_guard(config: dict[str, Any], key_digests: Sequence[str]) -> Guard:
    """The guard that a configuration asks for.

    Args:
        config: A ServiceConfig as plain data, of one model or, for the Router, of all.
        key_digests: SHA-256 of each API key, hexadecimal.
    """
    service = load_config(config)
    deployment = service.llm_configs[0].deployment_config
    limits = GuardLimits(deployment.max_ongoing_requests, deployment.max_queued_requests, service.limits.max_timeout_s)
    return Guard(limits, key_digests, admin=service.admin)


class EngineReplica:
    """An engine and the service over it, in one replica.

    Args:
        config: A ServiceConfig of one model, as plain data.
        key_digests: SHA-256 of each API key, hexadecimal: the keys themselves do not travel. None behind a Router,
            which has checked them.
    """

    # Serve awaits it, so that the engine's tasks run on the loop that serves.
    async def __init__(  # type: ignore[misc]
        self, config: dict[str, Any], key_digests: Sequence[str] = ()
    ) -> None:
        service_config = load_config(config)
        configure_logging(json=service_config.log_format == "json")
        llm = service_config.llm_configs[0]
        self._model_id = llm.model_loading_config.model_id
        progress = Progress(self._model_id)
        self._engine: Engine | None = None
        try:
            progress.phase("weights")
            check_environment()
            self._engine = _engine(llm)
            await self._engine.start()
        except StartError as error:
            progress.failed(str(error))
            raise
        except Exception as error:
            progress.failed(f"{type(error).__name__} in the replica; its log has the rest")
            raise
        self._service = Service(
            self._engine,
            own_guard(config, key_digests),
            Validator(max_n=service_config.limits.max_n),
            version=__version__,
            replica=serve.get_replica_context().replica_tag,
        )
        self._frames = Frames(self._service)
        progress.phase("ready")

    async def call_unary(self, method: str, request: bytes, context: tuple[Any, ...]) -> bytes:
        """A unary RPC over a handle: one frame, which holds the answer or the status."""
        return await self._frames.unary(method, request, context)

    async def call_stream(self, method: str, request: bytes, context: tuple[Any, ...]) -> AsyncIterator[bytes]:
        """A streaming RPC over a handle: a frame for each event, and one for the status where it fails."""
        async for frame in self._frames.stream(method, request, context):
            yield frame

    async def check_health(self) -> None:
        """Serve's health check: a dead engine has its replica replaced."""
        if self._engine is None or self._engine.errored:
            raise RuntimeError("the engine has died")

    async def __del__(self) -> None:
        """Serve awaits this when the replica stops; the engine core must not outlive it."""
        if self._engine is not None:
            await self._engine.shutdown()


class _DirectBackend:
    """The service of this replica; for admin RPCs that of every replica, since HAProxy reaches one of them."""

    def __init__(self, service: Service, handle: Any) -> None:
        self._service = service
        self._handle = handle
        self.authorize = service.authorize
        self.stream = service.stream

    async def unary(self, method: str, request: Message, call: CallContext) -> Message:
        """See `Backend.unary`."""
        if not method.startswith(ADMIN):
            return await self._service.unary(method, request, call)
        self._service.enter(method, request, call)
        return await everywhere([self._handle], method, request, call)


@serve.ingress()
class LLMServer(EngineReplica, wire.RpcMethods):
    """An EngineReplica that is the application's ingress: gRPC methods by name, and the FastAPI app for HTTP."""

    async def __init__(  # type: ignore[misc]
        self, config: dict[str, Any], key_digests: Sequence[str] = ()
    ) -> None:
        await EngineReplica.__init__(self, config, key_digests)
        replicas = serve.get_replica_context()
        self._backend = _DirectBackend(
            self._service, serve.get_deployment_handle(replicas.deployment, replicas.app_name)
        )
        self.rpc_backend = self._backend
        service_config = load_config(config)
        self.max_message_bytes = service_config.limits.max_message_bytes
        self._cors_origins = service_config.cors_origins

    def __serve_build_asgi_app__(self) -> FastAPI:
        """The REST shim over the service of this replica. Serve calls it after the constructor."""
        return create_app(
            self._backend,
            version=__version__,
            ready=self._ready,
            max_body_bytes=self.max_message_bytes,
            cors_origins=self._cors_origins,
        )

    async def _ready(self) -> bool:
        return self._service.serving

    async def serving_state(self, name: str) -> bool | None:
        """See `RpcMethods.serving_state`."""
        return self._service.serving if name in ("", *self.health_names()) else None

    def health_names(self) -> Sequence[str]:
        """See `RpcMethods.health_names`."""
        return [*contract_services(), self._model_id]

    @classmethod
    def from_llm_config(cls, config: LLMConfig) -> serve.Application:
        """A service of one model."""
        from tokenwire_server.serving.build import build_app

        return build_app({"llm_configs": [config]})
