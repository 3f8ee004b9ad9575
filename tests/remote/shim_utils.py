"""Takes the place of vLLM's `tests/utils.py`: its servers are one that already runs, whatever flags a test asks for.

`run_vllm_tests.py` copies this file beside vLLM's tests. The environment says where the server is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

VLLM_PATH = Path(__file__).parent.parent
ROCM_EXTRA_ARGS: list[str] = []
# The longest answer to wait for. vLLM's own value is 600 s.
_TIMEOUT = 90.0


# A small model seldom ends by itself: the most tokens of an answer that a test does not limit, by the end of its path.
_MOST = 200
_LIMITS = {"/chat/completions": ("max_tokens", "max_completion_tokens"), "/responses": ("max_output_tokens",)}


def _adapt(options: Any) -> Any:
    """Limits an answer, and names the model where a test leaves it to the server: OpenAI's API requires it."""
    names = _LIMITS.get(options.url)
    if names and isinstance(options.json_data, dict) and not isinstance(options.json_data.get("model"), str):
        options.json_data["model"] = os.environ["REMOTE_MODEL"]
    if names and isinstance(options.json_data, dict) and not any(options.json_data.get(name) for name in names):
        options.json_data[names[0]] = _MOST
    return options


class _Client(openai.OpenAI):
    def _prepare_options(self, options: Any) -> Any:
        return _adapt(options)


class _AsyncClient(openai.AsyncOpenAI):
    async def _prepare_options(self, options: Any) -> Any:
        return _adapt(options)


class RemoteOpenAIServer:
    """A server that runs already; `model`, its flags and its environment are not looked at."""

    DUMMY_API_KEY = "token-abc123"

    def __init__(self, model: str, vllm_serve_args: list[str], **options: Any) -> None:
        self.url_root = os.environ["REMOTE_BASE_URL"].rstrip("/")
        self.show_hidden_metrics = False

    def __enter__(self) -> RemoteOpenAIServer:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def url_for(self, *parts: str) -> str:
        path = "/".join(part.strip("/") for part in parts if part)
        return f"{self.url_root}/{path}"

    def _options(self, path: str, given: dict[str, Any]) -> dict[str, Any]:
        base = {"base_url": self.url_for(path), "api_key": self.DUMMY_API_KEY, "max_retries": 0}
        return base | {"timeout": _TIMEOUT} | given

    def get_client(self, **kwargs: Any) -> openai.OpenAI:
        return _Client(**self._options("v1", kwargs))

    def get_async_client(self, **kwargs: Any) -> openai.AsyncOpenAI:
        return _AsyncClient(**self._options("v1", kwargs))

    def get_client_anthropic(self, **kwargs: Any) -> anthropic.Anthropic:
        return anthropic.Anthropic(**self._options("", kwargs))

    def get_async_client_anthropic(self, **kwargs: Any) -> anthropic.AsyncAnthropic:
        return anthropic.AsyncAnthropic(**self._options("", kwargs))


def multi_gpu_only(**_: Any) -> Callable[[Any], Any]:
    """Without a GPU such a test is skipped."""
    return pytest.mark.skip(reason="needs several GPUs")


requires_fp8 = pytest.mark.skip(reason="needs a GPU with FP8")
