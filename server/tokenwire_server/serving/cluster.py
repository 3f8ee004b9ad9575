"""Ray and Serve themselves: started or joined, told what to run, asked how far they are, and stopped."""

from __future__ import annotations

import logging
import os
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import ray
from grpc_health.v1 import health_pb2, health_pb2_grpc
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from tokenwire_server import wire
from tokenwire_server.config import ServiceConfig
from tokenwire_server.errors import StartError
from tokenwire_server.serve_env import ESSENTIAL, HAPROXY
from tokenwire_server.serving.progress import read_progress
from tokenwire_server.serving.server import check_environment

__all__ = ["APP_NAME", "connect", "deploy", "doors_open", "run", "start_serve", "start_state", "stop"]

APP_NAME = "tokenwire"
"""Name of the Serve application."""


def connect(address: str | None, run_dir: Path, *, verbose: bool) -> None:
    """Starts Ray on this machine, or joins the cluster at `address`.

    Raises:
        StartError: The cluster cannot be reached, or its nodes lack Serve's variables.
    """
    quiet = {"log_to_driver": verbose, "logging_level": logging.INFO if verbose else logging.ERROR}
    if address is None:
        cpus = max(4, os.cpu_count() or 1)  # a replica and Serve's actors must fit a machine of two cores
        try:
            ray.init(
                address="local",
                num_cpus=cpus,
                include_dashboard=False,
                _temp_dir=str(run_dir / "r"),
                _node_ip_address="127.0.0.1",
                **quiet,
            )
        # Ray raises plain Exception when its own processes are too slow.
        except Exception as error:
            raise StartError("Ray did not start in time on this machine; is it busy? Try again") from error
        return
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        hint = "is the address right? A cluster with tokens needs RAY_AUTH_MODE=token and its token here too"
        raise StartError(f"--address {address}: no Ray cluster lets this process in; {hint}") from error
    # A function of the standard library: one of ours would import this package there, which sets the variables.
    ask = ray.remote(num_cpus=0)(os.getenv)
    there = ray.get([ask.remote(name) for name in ESSENTIAL])
    missing = " ".join(
        f"{name}={value}"
        for (name, value), found in zip(ESSENTIAL.items(), there, strict=True)
        # Where HAProxy lies is the node's own affair.
        if found != value and not (name == HAPROXY and found and Path(found).name == Path(value).name)
    )
    if missing:
        raise StartError(
            f"Ray at {address} runs with other settings: restart its nodes with these variables set: {missing}"
        )


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
    check_environment()
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
    for llm in config.llm_configs:
        progress = read_progress(llm.model_loading_config.model_id)
        if progress.get("phase") == "failed":
            raise StartError(f"{llm.model_loading_config.model_id}: {progress['error']}")
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


def stop() -> None:
    """Drains and ends the application; then leaves Ray, which ends with it where this process started it.

    `serve.shutdown()` is not called: it ends the proxies first, and with them every open stream.
    """
    if ray.is_initialized():
        with suppress(RayError, RayServeException):  # there may be no application yet, or no controller any more
            serve.delete(APP_NAME)
        ray.shutdown()
