"""From a configuration to a Serve application."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import ray
from ray import serve

from tokenwire_server.config import DeploymentConfig, LLMConfig, ServiceConfig, load_config
from tokenwire_server.engine.arguments import check_engine_kwargs
from tokenwire_server.serving.router import Router
from tokenwire_server.serving.server import EngineReplica, LLMServer

__all__ = ["build_app"]


def build_app(args: ServiceConfig | dict[str, Any]) -> serve.Application:
    """Builds the application: what `import_path: tokenwire_server:build_app` calls with `args`.

    Raises:
        ConfigError: What is wrong, a line each.
        StartError: An unknown name in `engine_kwargs`.
    """
    config = load_config(args)
    for llm in config.llm_configs:
        check_engine_kwargs(llm.llm_engine, llm.engine_kwargs)
    digests = [hashlib.sha256(key.encode()).hexdigest() for key in config.secret_keys()]
    data = config.model_dump(mode="json", exclude={"api_keys"})
    if not config.routed:
        deployment = serve.deployment(LLMServer).options(**_deployment_options(config, config.llm_configs[0]))
        return deployment.bind(data, digests)
    handles = {
        f"model_{number}": serve.deployment(EngineReplica)
        .options(**{**_deployment_options(config, llm), "name": f"model_{number}"})
        .bind({**data, "topology": "routed", "llm_configs": [llm.model_dump(mode="json")]})
        for number, llm in enumerate(config.llm_configs)
    }
    return serve.deployment(Router).options(**_router_options(config)).bind(data, digests, **handles)


def _router_options(config: ServiceConfig) -> dict[str, Any]:
    """Serve's options of the Router: it only passes on, so what it holds at once is what the models do."""
    wanted = config.ingress_deployment_config
    held = sum(
        llm.deployment_config.max_ongoing_requests + llm.deployment_config.max_queued_requests + 64
        for llm in config.llm_configs
    )
    options = {
        **_common_options(config, wanted),
        "name": "Router",
        "ray_actor_options": wanted.ray_actor_options.model_dump(exclude_none=True),
        "max_ongoing_requests": held,
        "max_queued_requests": held,
    }
    options.setdefault("num_replicas", 1)
    if "autoscaling_config" in options:
        del options["num_replicas"]
    return options


def _deployment_options(config: ServiceConfig, llm: LLMConfig) -> dict[str, Any]:
    """Serve's options of an engine deployment."""
    wanted = llm.deployment_config
    actor = wanted.ray_actor_options.model_dump(exclude_none=True)
    if llm.accelerator_type:
        actor["accelerator_type"] = llm.accelerator_type
    if llm.runtime_env:
        actor["runtime_env"] = llm.runtime_env
    actor.setdefault("num_gpus", _gpus(llm))
    # Serve's gate stays out of the way: it knows no RetryInfo and no fairness, and counts health checks.
    held = wanted.max_ongoing_requests + wanted.max_queued_requests + 64
    return {
        **_common_options(config, wanted),
        "name": "LLMServer",
        "ray_actor_options": actor,
        "max_ongoing_requests": held,
        "max_queued_requests": held,
        # A model that does not load does not load the second time either; the cause is shown at once.
        "max_constructor_retry_count": 1,
    }


def _gpus(llm: LLMConfig) -> int:
    """GPUs that the engine uses, reserved once: tensor x pipeline parallel size; 0 on a cluster that has none."""
    if llm.llm_engine != "vLLM":
        return 0
    there = llm.accelerator_type or (ray.is_initialized() and ray.cluster_resources().get("GPU", 0) > 0)
    sizes = (llm.engine_kwargs.get(f"{kind}_parallel_size", 1) for kind in ("tensor", "pipeline"))
    return math.prod(int(size) for size in sizes) if there else 0


def _common_options(config: ServiceConfig, wanted: DeploymentConfig) -> dict[str, Any]:
    """Options that are the same for engines and the Router."""
    drain = wanted.graceful_shutdown_timeout_s
    options: dict[str, Any] = {
        "graceful_shutdown_wait_loop_s": wanted.graceful_shutdown_wait_loop_s,
        "graceful_shutdown_timeout_s": config.limits.max_timeout_s if drain is None else drain,
        "health_check_period_s": wanted.health_check_period_s,
        "health_check_timeout_s": wanted.health_check_timeout_s,
    }
    if wanted.autoscaling_config is not None:
        options["autoscaling_config"] = wanted.autoscaling_config.model_dump(exclude_none=True)
    if wanted.num_replicas is not None:
        options["num_replicas"] = wanted.num_replicas
    if wanted.max_replicas_per_node is not None:
        options["max_replicas_per_node"] = wanted.max_replicas_per_node
    return options
