"""The Engine protocol: requests of the contract in, events of the contract out.

An engine is handed requests that have passed validation. It raises `StatusError` before its first event for whatever
it refuses, and its generators abort what they started when they are closed or cancelled.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tokenwire.admin.v1 import admin_pb2
from tokenwire.v1 import chat_pb2, embedding_pb2, generation_pb2, model_pb2, tokenization_pb2
from tokenwire_server.backend import CallContext

__all__ = ["ChatEvents", "Engine", "EngineLimits", "GenerateEvents"]

ChatEvents = AsyncGenerator[chat_pb2.StreamChatResponse, None]
GenerateEvents = AsyncGenerator[generation_pb2.StreamGenerateResponse, None]


@dataclass(frozen=True)
class EngineLimits:
    """What the model allows, for validation. Known once the engine has started."""

    max_model_len: int
    """Tokens of prompt and output together."""
    vocab_size: int
    """Token ids are 0 to `vocab_size - 1`."""
    max_logprobs: int
    """Largest `logprobs` and `prompt_logprobs`."""
    unsupported: frozenset[str] = frozenset()
    """Paths of request fields that this engine does not serve, such as `tools`; set ones get FEATURE_UNSUPPORTED."""


class Engine(Protocol):
    """A model that runs, or will once started."""

    @property
    def model(self) -> model_pb2.Model:
        """Facts of the model. Complete once started."""

    @property
    def version(self) -> str:
        """Name and version of what runs, such as `vllm 0.32.0`."""

    @property
    def limits(self) -> EngineLimits:
        """What the model allows."""

    @property
    def errored(self) -> bool:
        """Whether it has died and cannot serve again."""

    async def start(self) -> None:
        """Loads the model and warms it up.

        Raises:
            StartError: With the cause in one line.
        """

    async def shutdown(self) -> None:
        """Ends it. Idempotent."""

    def generate(
        self, request: generation_pb2.GenerateRequest, call: CallContext, *, stream: bool = True
    ) -> GenerateEvents:
        """Completes a prompt. With `stream` false an output comes as one delta, when it has ended."""

    def chat(self, request: chat_pb2.ChatRequest, call: CallContext, *, stream: bool = True) -> ChatEvents:
        """Continues a conversation. `stream` as in `generate`."""

    async def embed(self, request: embedding_pb2.EmbedRequest, call: CallContext) -> embedding_pb2.EmbedResponse:
        """Embeds each input."""

    async def tokenize(self, request: tokenization_pb2.TokenizeRequest) -> tokenization_pb2.TokenizeResponse:
        """Turns text into token ids."""

    async def detokenize(self, request: tokenization_pb2.DetokenizeRequest) -> tokenization_pb2.DetokenizeResponse:
        """Turns token ids into text."""

    async def render_chat(self, request: tokenization_pb2.RenderChatRequest) -> tokenization_pb2.RenderChatResponse:
        """Applies the chat template."""

    async def tokenizer_info(self) -> tokenization_pb2.GetTokenizerInfoResponse:
        """Facts of the tokenizer."""

    def adapter_names(self) -> list[str]:
        """Names of the LoRA adapters that requests may choose."""

    def adapter_named(self, name: str) -> str | None:
        """The adapter that a request's `model` means: `model:adapter`, or an adapter's own name."""

    async def load_adapter(self, name: str) -> None:
        """Loads an adapter ahead of its first request.

        Raises:
            StatusError: ADAPTER_NOT_FOUND, INVALID_FIELD, or FEATURE_UNSUPPORTED where there are none.
        """

    async def unload_adapter(self, name: str) -> bool:
        """Unloads an adapter; whether it was loaded.

        Raises:
            StatusError: QUEUE_FULL while it is in use, FEATURE_UNSUPPORTED where there are none.
        """

    async def adapters(self, replica: str) -> list[admin_pb2.Adapter]:
        """The adapters with their ranks; `replicas` is the name given here for one that is loaded."""

    def load(self) -> admin_pb2.ReplicaLoad:
        """Running and waiting requests and KV cache use, as the engine's scheduler last reported them."""

    async def reset_prefix_cache(self) -> None:
        """Empties the prefix cache."""

    async def cancel(self, request_ids: Sequence[str]) -> int:
        """Ends the named requests with finish reason ABORTED; returns how many were running."""
