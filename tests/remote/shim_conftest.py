"""Takes the place of vLLM's `tests/conftest.py`: tokenizers are the served model's, outcomes go to a file."""

from __future__ import annotations

import fnmatch
import json
import os
from pathlib import Path
from typing import Any

import pytest
import transformers
import vllm.config
import vllm.tokenizers
import vllm.transformers_utils.repo_utils

_FOLDER = os.environ["REMOTE_TOKENIZER"]
_OUT = Path(os.environ["REMOTE_RESULTS"])
_SKIP: list[tuple[str, str]] = [(one["test"], one["why"]) for one in json.loads(os.environ["REMOTE_SKIP"])]

_get_tokenizer = vllm.tokenizers.get_tokenizer
_from_pretrained = transformers.AutoTokenizer.from_pretrained


def _tokenizer(*_: Any, **__: Any) -> Any:
    return _get_tokenizer(tokenizer_name=_FOLDER)


# Before the tests' modules take these names.
vllm.tokenizers.get_tokenizer = _tokenizer
transformers.AutoTokenizer.from_pretrained = lambda *_, **__: _from_pretrained(_FOLDER)
_ModelConfig = vllm.config.ModelConfig
vllm.config.ModelConfig = lambda *_, **__: _ModelConfig(model=_FOLDER)


class _Hub:
    """Stands for the Hugging Face hub: nothing is fetched."""

    def snapshot_download(self, *_: Any, **__: Any) -> str:
        return _FOLDER


vllm.transformers_utils.repo_utils.hf_api = _Hub


class LocalAssetServer:
    """Images for tests that are skipped here."""


@pytest.fixture
def local_asset_server() -> LocalAssetServer:
    return LocalAssetServer()


def _name(nodeid: str) -> str:
    return nodeid.removeprefix("tests/").removeprefix("entrypoints/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for pattern, why in _SKIP:
            # Brackets are part of a test's name and no character classes.
            if fnmatch.fnmatchcase(_name(item.nodeid), pattern.replace("[", "[[]")):
                item.add_marker(pytest.mark.skip(reason=why))
                break


def _write(nodeid: str, outcome: str, text: str) -> None:
    with _OUT.open("a") as out:
        out.write(json.dumps({"test": _name(nodeid), "outcome": outcome, "text": text}) + "\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        text = ""
        if report.skipped and isinstance(report.longrepr, tuple):
            text = str(report.longrepr[2]).removeprefix("Skipped: ")
        elif report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = str(crash.message if crash else report.longrepr)
        _write(report.nodeid, report.outcome, text)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write(report.nodeid, "failed", f"not collected: {report.longreprtext[-600:]}")
