"""Adapters of one engine: loaded at the first request, the least recently used one unloaded from vLLM too."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from vllm.lora.request import LoRARequest
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from tokenwire_server.adapters import Catalogue
from tokenwire_server.errors import StatusError

__all__ = ["Adapters", "lora_arguments"]

_log = logging.getLogger(__name__)

_PLACES = 4
"""Adapters in one batch where the configuration does not say."""


def lora_arguments(max_adapters: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """VLLM's arguments for that many adapters; what is given stays."""
    places = given.get("max_loras", min(_PLACES, max_adapters))
    ours = {"enable_lora": True, "max_loras": places, "max_cpu_loras": max(max_adapters, places)}
    return {**ours, **given}


class Adapters:
    """What an engine holds of a catalogue.

    Args:
        client: The engine.
        catalogue: Where adapters come from.
        most: How many are held; more than that only while that many are in use.
    """

    def __init__(self, client: AsyncLLM, catalogue: Catalogue, most: int) -> None:
        self._client = client
        self._catalogue = catalogue
        self._most = most
        self._held: OrderedDict[str, LoRARequest] = OrderedDict()
        self._in_use: Counter[str] = Counter()
        # An id is never given twice: what vLLM still knows under it could answer for another adapter.
        self._ids = count(1)
        self._loading = asyncio.Lock()

    async def held(self) -> list[str]:
        """Names of those that are loaded, as vLLM itself says."""
        ids = await self._client.list_loras()
        return [name for name, request in self._held.items() if request.lora_int_id in ids]

    @asynccontextmanager
    async def use(self, name: str) -> AsyncIterator[LoRARequest]:
        """An adapter for the time of one request; loads it where it is not.

        Raises:
            StatusError: ADAPTER_NOT_FOUND, or INVALID_FIELD for one that vLLM cannot load.
        """
        self._in_use[name] += 1
        try:
            yield await self.load(name)
        finally:
            self._in_use[name] -= 1
            if not self._in_use[name]:
                del self._in_use[name]

    async def load(self, name: str) -> LoRARequest:
        """Loads an adapter ahead of its first request.

        Raises:
            StatusError: As `use`.
        """
        if name not in self._held:
            async with self._loading:
                if name not in self._held:
                    request = self._held[name] = await self._load(name)
                    await self._unload_idle(but=name)
                    return request
        self._held.move_to_end(name)
        return self._held[name]

    async def unload(self, name: str) -> bool:
        """Unloads an adapter; whether it was loaded.

        Raises:
            StatusError: It is in use.
        """
        async with self._loading:
            if name not in self._held:
                return False
            if self._in_use[name]:
                raise StatusError.retry_later("QUEUE_FULL", f"The adapter `{name}` is in use.", 1.0)
            await self._remove(name)
            return True

    async def _load(self, name: str) -> LoRARequest:
        files = await asyncio.to_thread(self._catalogue.find, name)
        request = LoRARequest(name, next(self._ids), str(files.folder))
        try:
            loaded = await self._client.add_lora(request)
        except EngineDeadError:
            raise
        # vLLM's worker passes on whatever the files made it raise, as a bare Exception.
        except Exception as error:  # noqa: BLE001
            _log.warning("the adapter %s could not be loaded: %s", name, error)
            loaded = False
        if not loaded:
            raise StatusError.field("adapter", f"`{name}` does not fit the model, and could not be loaded")
        return request

    async def _unload_idle(self, *, but: str) -> None:
        for name in [one for one in self._held if not self._in_use[one] and one != but]:
            if len(self._held) <= self._most:
                return
            await self._remove(name)

    async def _remove(self, name: str) -> None:
        await self._client.remove_lora(self._held.pop(name).lora_int_id)
