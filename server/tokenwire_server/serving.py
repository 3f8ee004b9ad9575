"""Ray Serve: the engine deployment that is its own ingress, and how it is deployed. All imports of Ray are here."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import ray
from fastapi import FastAPI
from grpc_health.v1 import health_pb2, health_pb2_grpc
from ray import serve
from ray.experimental import internal_kv
from ray.serve._private import constants as serve_constants

from tokenwire_server import __version__, wire
from tokenwire_server.backend import contract_services
from tokenwire_server.config import LLMConfig, ServiceConfig, load_config
from tokenwire_server.engine.echo import EchoEngine
from tokenwire_server.engine.protocol import Engine
from tokenwire_server.errors import StartError
from tokenwire_server.guard import Guard, GuardLimits
from tokenwire_server.rest import create_app
from tokenwire_server.serve_env import ESSENTIAL
from tokenwire_server.service import Service
from tokenwire_server.telemetry import configure_logging
from tokenwire_server.validation import Validator

__all__ = ["APP_NAME", "LLMServer", "build_app", "read_progress", "run"]

APP_NAME = "tokenwire"
"""Name of the Serve application."""

_PROGRESS = b"tokenwire/start/"

_log = logging.getLogger(__name__)


class _Progress:
    """Tells whoever starts the service how far a replica is, through the cluster's key-value store.

    Serve's own status has no phases and wraps a failure in a traceback.
    """

    def __init__(self, model_id: str) -> None:
        self._key = _PROGRESS + model_id.encode()
        self._began = time.monotonic()

    def phase(self, name: str) -> None:
        """A phase begins."""
        self._put({"phase": name, "seconds": time.monotonic() - self._began})

    def failed(self, cause: str) -> None:
        """The start failed, for a cause of one line."""
        self._put({"phase": "failed", "error": cause, "seconds": time.monotonic() - self._began})

    def _put(self, value: dict[str, Any]) -> None:
        internal_kv._internal_kv_put(self._key, json.dumps(value).encode())


def read_progress(model_id: str) -> dict[str, Any]:
    """The last thing that a replica of the model told: `phase`, `seconds`, and `error` where it failed."""
    value = internal_kv._internal_kv_get(_PROGRESS + model_id.encode())
    return dict(json.loads(value)) if value else {}


def _engine(llm: LLMConfig) -> Engine:
    loading = llm.model_loading_config
    if llm.llm_engine == "echo":
        try:
            return EchoEngine(loading.model_id, **llm.engine_kwargs)
        except TypeError as error:
            raise StartError(f"engine_kwargs: {error}") from None
    try:
        # Imported here alone: with it come torch and seconds, which an echo replica and the driver do without.
        from tokenwire_server.engine.vllm_engine import VLLMEngine
    except ModuleNotFoundError as error:
        if error.name not in ("vllm", "torch"):
            raise
        text = (
            f"{error.name} is not installed: pip install 'tokenwire[cpu]', or 'tokenwire[gpu]' on a machine with a GPU"
        )
        raise StartError(text) from None
    return VLLMEngine(loading.model_id, loading.source, llm.engine_kwargs)


def _check_environment() -> None:
    """A node without Serve's variables would serve a tenth as fast and lose cancels: it does not start instead."""
    if not serve_constants.RAY_SERVE_ENABLE_HA_PROXY:
        lines = " ".join(f"{name}={value}" for name, value in ESSENTIAL.items())
        raise StartError(
            "Serve runs without HAProxy on this node. Start Ray with these variables in the environment of every "
            f"node: {lines}"
        )


@serve.ingress()
class LLMServer(wire.RpcMethods):
    """An engine and both doors in one replica: gRPC methods by name, and the FastAPI app for HTTP.

    Args:
        config: A ServiceConfig as plain data.
        key_digests: SHA-256 of each API key, hexadecimal: the keys themselves do not travel.
    """

    # Serve awaits it, so that the engine's tasks run on the loop that serves.
    async def __init__(  # type: ignore[misc]
        self, config: dict[str, Any], key_digests: Sequence[str]
    ) -> None:
        service_config = load_config(config)
        configure_logging(json=service_config.log_format == "json")
        llm = service_config.llm_configs[0]
        progress = _Progress(llm.model_loading_config.model_id)
        self._engine: Engine | None = None
        try:
            progress.phase("weights")
            _check_environment()
            self._engine = _engine(llm)
            await self._engine.start()
        except StartError as error:
            progress.failed(str(error))
            raise
        except Exception as error:
            progress.failed(f"{type(error).__name__} in the replica; its log has the rest")
            raise
        limits = service_config.limits
        deployment = llm.deployment_config
        guard = Guard(
            GuardLimits(deployment.max_ongoing_requests, deployment.max_queued_requests, limits.max_timeout_s),
            key_digests,
            admin=service_config.admin,
        )
        replica = serve.get_replica_context().replica_tag
        self._service = Service(
            self._engine, guard, Validator(max_n=limits.max_n), version=__version__, replica=replica
        )
        self.rpc_backend = self._service
        self.max_message_bytes = limits.max_message_bytes
        self._model_id = llm.model_loading_config.model_id
        progress.phase("ready")

    def __serve_build_asgi_app__(self) -> FastAPI:
        """The REST shim over the service of this replica. Serve calls it after the constructor."""
        return create_app(self._service, version=__version__, ready=self._ready)

    async def _ready(self) -> bool:
        return self._service.serving

    async def serving_state(self, name: str) -> bool | None:
        """See `RpcMethods.serving_state`."""
        return self._service.serving if name in ("", *self.health_names()) else None

    def health_names(self) -> Sequence[str]:
        """See `RpcMethods.health_names`."""
        return [*contract_services(), self._model_id]

    async def check_health(self) -> None:
        """Serve's health check: a dead engine has its replica replaced."""
        if self._engine is None or self._engine.errored:
            raise RuntimeError("the engine has died")

    async def __del__(self) -> None:
        """Serve awaits this when the replica stops; the engine core must not outlive it."""
        if self._engine is not None:
            await self._engine.shutdown()

    @classmethod
    def from_llm_config(cls, config: LLMConfig) -> serve.Application:
        """A service of one model."""
        return build_app({"llm_configs": [config]})


def build_app(args: ServiceConfig | dict[str, Any]) -> serve.Application:
    """Builds the application: what `import_path: tokenwire_server:build_app` calls with `args`.

    Raises:
        ConfigError: What is wrong, a line each.
    """
    config = load_config(args)
    digests = [hashlib.sha256(key.encode()).hexdigest() for key in config.secret_keys()]
    data = config.model_dump(mode="json", exclude={"api_keys"})
    deployment = serve.deployment(LLMServer).options(**_deployment_options(config, config.llm_configs[0]))
    return deployment.bind(data, digests)


def _deployment_options(config: ServiceConfig, llm: LLMConfig) -> dict[str, Any]:
    """Serve's options of the engine deployment."""
    wanted = llm.deployment_config
    actor = wanted.ray_actor_options.model_dump(exclude_none=True)
    if llm.accelerator_type:
        actor["accelerator_type"] = llm.accelerator_type
    if llm.runtime_env:
        actor["runtime_env"] = llm.runtime_env
    options: dict[str, Any] = {
        "name": "LLMServer",
        "ray_actor_options": actor,
        # Serve's gate stays out of the way: it knows no RetryInfo and no fairness, and counts health checks.
        "max_ongoing_requests": wanted.max_ongoing_requests + wanted.max_queued_requests + 64,
        "max_queued_requests": wanted.max_ongoing_requests + wanted.max_queued_requests + 64,
        "graceful_shutdown_wait_loop_s": wanted.graceful_shutdown_wait_loop_s,
        "graceful_shutdown_timeout_s": wanted.graceful_shutdown_timeout_s or config.limits.max_timeout_s,
        "health_check_period_s": wanted.health_check_period_s,
        "health_check_timeout_s": wanted.health_check_timeout_s,
        # A model that does not load does not load the second time either; the cause is shown at once.
        "max_constructor_retry_count": 1,
    }
    if wanted.autoscaling_config is not None:
        options["autoscaling_config"] = wanted.autoscaling_config.model_dump(exclude_none=True)
    if wanted.num_replicas is not None:
        options["num_replicas"] = wanted.num_replicas
    if wanted.max_replicas_per_node is not None:
        options["max_replicas_per_node"] = wanted.max_replicas_per_node
    return options


def connect(address: str | None, run_dir: Path, *, verbose: bool) -> None:
    """Starts Ray on this machine, or joins the cluster at `address`.

    Raises:
        StartError: The cluster cannot be reached, or its nodes lack Serve's variables.
    """
    quiet = {"log_to_driver": verbose, "logging_level": logging.INFO if verbose else logging.ERROR}
    if address is None:
        cpus = max(4, os.cpu_count() or 1)  # a replica and Serve's actors must fit a machine of two cores
        ray.init(
            address="local",
            num_cpus=cpus,
            include_dashboard=False,
            _temp_dir=str(run_dir / "r"),
            _node_ip_address="127.0.0.1",
            **quiet,
        )
        return
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise StartError(f"--address {address}: no Ray cluster answers there ({type(error).__name__})") from None
    missing = ray.get(ray.remote(num_cpus=0)(_missing_variables).remote())
    if missing:
        raise StartError(
            f"Ray at {address} runs with other settings: restart its nodes with these variables set: {missing}"
        )


def _missing_variables() -> str:
    """Serve's variables that this process lacks, as they would be written in a shell."""
    return " ".join(f"{name}={value}" for name, value in ESSENTIAL.items() if os.environ.get(name) != value)


def start_serve(*, host: str, grpc_port: int, http_port: int) -> None:
    """Starts Serve on the Ray that this process is connected to, with both doors.

    Raises:
        StartError: Serve runs there already, with other ports.
    """
    client = serve.context._get_global_client(raise_if_no_controller_running=False)
    if client is not None and (client.http_config.port, client.grpc_config.port) != (http_port, grpc_port):
        raise StartError(
            f"Serve already runs on this cluster with gRPC on port {client.grpc_config.port} and HTTP on port "
            f"{client.http_config.port}, which cannot change: use those ports, or `serve shutdown` first"
        )
    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # phases say what it would
    serve.start(
        http_options={"host": host, "port": http_port},
        grpc_options={"port": grpc_port, "grpc_servicer_functions": wire.registration_functions()},
        logging_config={"enable_access_log": False, "log_level": "WARNING"},
    )


def run(
    app: serve.Application,
    *,
    host: str = "127.0.0.1",
    grpc_port: int = 9000,
    http_port: int = 8000,
    blocking: bool = True,
) -> None:
    """Starts Serve with gRPC and HAProxy, deploys the application, and waits.

    Args:
        app: From `build_app`.
        host: 127.0.0.1, or 0.0.0.0 for all interfaces.
        grpc_port: Port of gRPC.
        http_port: Port of REST.
        blocking: Returns once the service is up when false; otherwise at Ctrl-C, after it has drained.
    """
    _check_environment()
    start_serve(host=host, grpc_port=grpc_port, http_port=http_port)
    if blocking:
        serve.run(app, name=APP_NAME, route_prefix="/", blocking=True)
    else:
        serve.run(app, name=APP_NAME, route_prefix="/")


def deploy(app: serve.Application) -> None:
    """Deploys the application and does not wait."""
    serve.run_many([serve.RunTarget(app, name=APP_NAME, route_prefix="/")], wait_for_applications_running=False)


def start_state(config: ServiceConfig) -> bool:
    """Whether the application runs.

    Raises:
        StartError: It will not, with the cause.
    """
    progress = read_progress(config.llm_configs[0].model_loading_config.model_id)
    if progress.get("phase") == "failed":
        raise StartError(str(progress["error"]))
    status = serve.status().applications.get(APP_NAME)
    if status is not None and status.status in ("DEPLOY_FAILED", "UNHEALTHY"):
        raise StartError(f"the deployment failed: {' '.join(status.message.split())[-300:]}")
    return status is not None and status.status == "RUNNING"


def doors_open(grpc_port: int, http_port: int) -> bool:
    """Whether both doors answer through HAProxy: what comes last is the proxy's view of the replica."""
    try:
        with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=2)
        with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/readyz", timeout=2) as ready:
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING and ready.status == 200)
    except (grpc.RpcError, OSError):
        return False


def stop(*, leave_serve: bool) -> None:
    """Drains and ends the application, and Serve unless the cluster is somebody else's; then leaves Ray.

    Ray itself ends with it where this process started it.
    """
    if ray.is_initialized():
        if leave_serve:
            serve.delete(APP_NAME)
        else:
            serve.shutdown()
        ray.shutdown()
