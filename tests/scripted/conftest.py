"""Scripted engines: all of vLLM but the model, in this process, one for each set of parsers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# vLLM warns of its own and of torch's deprecations while it is imported and started; ours are errors.
pytestmark = pytest.mark.filterwarnings("ignore")


class Stage:
    """A scripted engine, and what it will say next."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.script: Any = None
        self.requests: list[Any] = []

    def tell(self, request: Any) -> Any:
        self.requests.append(request)
        return self.script


StageMaker = Callable[..., Awaitable[Stage]]


@pytest.fixture(scope="session")
async def stages(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StageMaker]:
    """Makes stages by their parsers and special tokens; each is made once."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tokenwire_server.engine.vllm_scripted import CHAT_TEMPLATE, ScriptedEngine, write_model_folder

    made: dict[Any, Stage] = {}

    async def make(special: tuple[str, ...] = (), template: str = CHAT_TEMPLATE, **engine_kwargs: Any) -> Stage:
        key = (special, template, tuple(sorted(engine_kwargs.items())))
        if key not in made:
            folder: Path = write_model_folder(tmp_path_factory.mktemp("model"), special, template=template)
            stage = Stage(None)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                stage.engine = ScriptedEngine("scripted", folder, stage.tell, engine_kwargs)
                await stage.engine.start()
            made[key] = stage
        return made[key]

    yield make
    for stage in made.values():
        await stage.engine.shutdown()
