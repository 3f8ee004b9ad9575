"""Configuration: what may be written in YAML, in Python and in the environment, and nothing else.

The vocabulary is Ray Serve LLM's. A key that is not known is an error at any depth, which names it and the nearest
right one; nothing is dropped in silence.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

__all__ = [
    "EMBEDDED_MODEL",
    "ConfigError",
    "LLMConfig",
    "LimitsConfig",
    "LoraConfig",
    "ModelLoadingConfig",
    "ServiceConfig",
    "default_config",
    "load_config",
]

EMBEDDED_MODEL = "embedded:smollm2-135m-instruct"
"""`model_source` of the embedded default: SmolLM2-135M-Instruct, from a Python package, converted once."""


class ConfigError(Exception):
    """A configuration that cannot be used: one line for each thing that is wrong, each with the key's path."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            for key in data:
                if key not in cls.model_fields:
                    near = get_close_matches(str(key), cls.model_fields, n=1, cutoff=0.5)
                    hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(sorted(cls.model_fields))}"
                    raise PydanticCustomError("unknown_key", "unknown key `{key}`; {hint}", {"key": key, "hint": hint})
        return data


class ModelLoadingConfig(_Strict):
    """Which model."""

    model_id: str = Field(min_length=1, max_length=512)
    """What requests name it by."""
    model_source: str | None = None
    """A folder or a name on the Hugging Face hub. Default: `model_id`."""

    @property
    def source(self) -> str:
        """Where the weights are."""
        return self.model_source or self.model_id


class AutoscalingConfig(_Strict):
    """Ray Serve's autoscaling keys."""

    min_replicas: int = Field(default=1, ge=0)
    """Fewest replicas."""
    initial_replicas: int | None = Field(default=None, ge=0)
    """Replicas at the start. Default: `min_replicas`."""
    max_replicas: int = Field(default=1, ge=1)
    """Most replicas."""
    target_ongoing_requests: float = Field(default=16, gt=0)
    """Requests for each replica that scaling aims at."""
    upscale_delay_s: float = Field(default=10, ge=0)
    """Seconds of need before a replica is added."""
    downscale_delay_s: float = Field(default=600, ge=0)
    """Seconds without need before one is removed."""
    downscale_to_zero_delay_s: float | None = Field(default=None, ge=0)
    """The same for the last one."""
    look_back_period_s: float = Field(default=30, gt=0)
    """Seconds over which load is averaged."""
    upscaling_factor: float | None = Field(default=None, gt=0)
    """How strongly a need scales up."""
    downscaling_factor: float | None = Field(default=None, gt=0)
    """How strongly it scales down."""
    aggregation_function: Literal["mean", "max", "min"] = "mean"
    """How load is combined over time."""

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, data: Any) -> Any:
        old = "target_num_ongoing_requests_per_replica"
        if isinstance(data, dict) and old in data:
            warnings.warn(f"`{old}` is the old name of `target_ongoing_requests`; it is taken as that", stacklevel=2)
            data = {**data, "target_ongoing_requests": data[old]}
            del data[old]
        return data


class RayActorOptions(_Strict):
    """What Ray reserves for a replica."""

    num_cpus: float | None = Field(default=None, ge=0)
    """CPUs. Default 1."""
    num_gpus: float | None = Field(default=None, ge=0)
    """GPUs. Left out, it is what the engine uses: tensor x pipeline parallel size."""
    memory: float | None = Field(default=None, ge=0)
    """Bytes."""
    resources: dict[str, float] | None = None
    """Custom resources."""
    runtime_env: dict[str, Any] | None = None
    """Ray runtime environment."""
    accelerator_type: str | None = None
    """Kind of accelerator that the node must have."""


class DeploymentConfig(_Strict):
    """Ray Serve's deployment keys."""

    num_replicas: int | Literal["auto"] | None = None
    """Replicas, or `auto` for 1 to 100 by load. Default 1, or what `autoscaling_config` says."""
    autoscaling_config: AutoscalingConfig | None = None
    """Scaling by load."""
    ray_actor_options: RayActorOptions = RayActorOptions()
    """What Ray reserves."""
    max_ongoing_requests: int = Field(default=256, ge=1, le=100_000)
    """Inference requests that run in one replica at once; the others wait."""
    max_queued_requests: int = Field(default=1024, ge=0, le=1_000_000)
    """Inference requests that wait for one replica; one more is refused with QUEUE_FULL."""
    graceful_shutdown_wait_loop_s: float = Field(default=2.0, gt=0)
    """Seconds between looks at whether a stopping replica is idle."""
    graceful_shutdown_timeout_s: float | None = Field(default=None, ge=0)
    """Seconds that a stopping replica may take to finish its streams. Default: `limits.max_timeout_s`."""
    health_check_period_s: float = Field(default=10.0, gt=0)
    """Seconds between Serve's health checks."""
    health_check_timeout_s: float = Field(default=30.0, gt=0)
    """Seconds after which one counts as failed."""
    max_replicas_per_node: int | None = Field(default=None, ge=1, le=100)
    """Most replicas on one node."""


class LoraConfig(_Strict):
    """LoRA adapters of a model."""

    dynamic_lora_loading_path: str = Field(min_length=1)
    """Folder whose subfolders are adapters as PEFT saves them; on each node that may run a replica."""
    max_num_adapters_per_replica: int = Field(default=16, ge=1, le=4096)
    """Adapters that a replica holds; the least recently used one goes first."""

    @field_validator("dynamic_lora_loading_path")
    @classmethod
    def _local(cls, value: str) -> str:
        if "://" in value:
            kind = value.partition("://")[0]
            raise PydanticCustomError("remote", "{kind}:// is not served yet: name a folder", {"kind": kind})
        return value


class LLMConfig(_Strict):
    """One model and how it is deployed. The keys are Ray Serve LLM's."""

    model_loading_config: ModelLoadingConfig
    """Which model."""
    llm_engine: Literal["vLLM", "echo", "scripted"] = "vLLM"
    """What runs it. `echo` needs no model: it answers with the prompt, for tests of what is around it. `scripted` is
    vLLM with a script in place of the model, for benchmarks of what serving costs."""
    engine_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Arguments of vLLM's `AsyncEngineArgs`, by their own names; for `echo` those of EchoEngine, for `scripted` also
    those of RepeatingEngine."""
    lora_config: LoraConfig | None = None
    """LoRA adapters that requests may choose; none turns them off."""
    deployment_config: DeploymentConfig = DeploymentConfig()
    """How it is deployed."""
    accelerator_type: str | None = None
    """Kind of accelerator that the node must have, such as `A10G`."""
    runtime_env: dict[str, Any] | None = None
    """Ray runtime environment of the replica."""


class LimitsConfig(_Strict):
    """What any request may ask for, on every door."""

    max_message_bytes: int = Field(default=8 * 2**20, ge=1024, le=512 * 2**20)
    """Largest request, bytes."""
    max_n: int = Field(default=128, ge=1, le=128)
    """Largest `n`."""
    max_timeout_s: float = Field(default=3600.0, gt=0, le=86400)
    """Longest call, and what one without a timeout gets, seconds."""


class ServiceConfig(_Strict):
    """The whole service: `args` of a Serve config file, or the file that `tokenwire serve` reads."""

    llm_configs: list[LLMConfig] = Field(min_length=1)
    """The models."""
    topology: Literal["auto", "direct", "routed"] = "auto"
    """`direct`: the engine deployment is the ingress, with no hop. `routed`: a Router in front picks the deployment by
    the request's `model`. `auto` is direct for one model with at least one replica, else routed."""
    ingress_deployment_config: DeploymentConfig = DeploymentConfig()
    """How the Router of the routed topology is deployed."""
    limits: LimitsConfig = LimitsConfig()
    """What any request may ask for."""
    api_keys: list[SecretStr] = Field(default_factory=list)
    """Keys of which a caller must send one (`authorization: Bearer`). Default: `TOKENWIRE_API_KEYS`, comma separated;
    with none the door is open."""
    cors_origins: list[str] = Field(default_factory=list)
    """Origins whose pages may call REST, such as `https://app.example`; none turns CORS off."""
    admin: bool = False
    """Whether AdminService answers."""
    log_format: Literal["text", "json"] = "text"
    """How replicas write their logs."""

    @model_validator(mode="after")
    def _topology_fits(self) -> ServiceConfig:
        ids = [llm.model_loading_config.model_id for llm in self.llm_configs]
        twice = next((one for one in ids if ids.count(one) > 1), None)
        if twice is not None:
            raise PydanticCustomError("twice", "model_id `{id}` is there twice", {"id": twice})
        if self.topology == "direct" and len(ids) > 1:
            raise PydanticCustomError("direct_many", "topology direct serves one model: use auto or routed for several")
        if self.topology == "direct" and self._scales_to_zero():
            raise PydanticCustomError(
                "direct_zero", "min_replicas 0 needs the routed topology: with no replica, calls have nowhere to go"
            )
        return self

    def _scales_to_zero(self) -> bool:
        scaling = [llm.deployment_config.autoscaling_config for llm in self.llm_configs]
        return any(one is not None and one.min_replicas == 0 for one in scaling)

    @property
    def routed(self) -> bool:
        """Whether a Router stands in front."""
        return self.topology == "routed" or (
            self.topology == "auto" and (len(self.llm_configs) > 1 or self._scales_to_zero())
        )

    def secret_keys(self) -> list[str]:
        """The API keys, from here or else from the environment."""
        given = [key.get_secret_value() for key in self.api_keys]
        return given or [key for key in os.environ.get("TOKENWIRE_API_KEYS", "").split(",") if key]


def load_config(data: Any) -> ServiceConfig:
    """Checks a configuration.

    Raises:
        ConfigError: With one line for each thing that is wrong.
    """
    if isinstance(data, ServiceConfig):
        return data
    if isinstance(data, Mapping):
        # LLMConfig objects are welcome beside plain mappings.
        data = {
            k: [c.model_dump() if isinstance(c, LLMConfig) else c for c in v] if k == "llm_configs" else v
            for k, v in data.items()
        }
    try:
        return ServiceConfig.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(_line(one) for one in error.errors())) from None


def load_file(path: Path) -> ServiceConfig:
    """Reads a YAML file: the service's keys, or a Serve config file whose first application carries them as `args`.

    Raises:
        ConfigError: The file is not there, is not YAML, or says something wrong.
    """
    try:
        data = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({type(error).__name__})") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{path}: is not YAML{where}: {getattr(error, 'problem', 'unreadable')}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: must be a mapping with the key llm_configs")
    applications = data.get("applications")
    if isinstance(applications, list) and applications and isinstance(applications[0], dict):
        data = applications[0].get("args", {})
    try:
        return load_config(data)
    except ConfigError as error:
        raise ConfigError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from None


def default_config() -> ServiceConfig:
    """What is served with no configuration: the embedded default, on the CPU, in float32.

    float32, since greedy SmolLM2-135M wanders in bfloat16, where its first token is a near tie.
    """
    model = LLMConfig(
        model_loading_config=ModelLoadingConfig(model_id="smollm2-135m", model_source=EMBEDDED_MODEL),
        engine_kwargs={
            "dtype": "float32",
            "enforce_eager": True,
            "max_model_len": 4096,
            "max_num_seqs": 64,
            # A cancel takes effect between two steps: with vLLM's 4096 one takes 4 s on two cores.
            "max_num_batched_tokens": 512,
            # The model's authors' advice. At vLLM's own 1.0 a model this small wanders.
            "override_generation_config": {"temperature": 0.2, "top_p": 0.9},
        },
    )
    return ServiceConfig(llm_configs=[model])


def _line(error: Any) -> str:
    path = ""
    for part in error["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    message = error["msg"]
    return f"{path}: {message}" if path else str(message)
