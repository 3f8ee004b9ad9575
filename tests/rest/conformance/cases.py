"""Cases -> runs: one request each, with what its answer must be."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Run", "load_cases", "runs_of"]

_FILE = Path(__file__).parents[1] / "data" / "openai_rest.jsonl"
_STREAMING = ("/v1/chat/completions", "/v1/completions", "/v1/responses")


@dataclass(frozen=True)
class Run:
    """One request of a case."""

    case: str
    name: str
    """Variant and mode; empty for the case's own request as it is."""
    request: Mapping[str, Any]
    check: Mapping[str, Any]
    needs: tuple[str, ...] = ()
    repeat: int = 1
    expect: str = ""
    parts: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Case, variant and mode."""
        return f"{self.case}[{self.name}]" if self.name else self.case

    @property
    def streams(self) -> bool:
        """Whether the request asks for a stream."""
        body = self.request.get("body")
        return isinstance(body, dict) and body.get("stream") is True


def load_cases() -> list[dict[str, Any]]:
    """The cases as they are in the file."""
    return [json.loads(line) for line in _FILE.read_text().splitlines() if line]


def runs_of(case: Mapping[str, Any]) -> Iterator[Run]:
    """Every request of a case: its own and its variants', in each mode."""
    yield from _modes(case, "", case["request"], case["check"])
    for variant in case.get("variants", ()):
        request = variant.get("request", case["request"])
        yield from _modes(case, variant["name"], request, variant.get("check", case["check"]))


def _modes(case: Mapping[str, Any], name: str, request: Mapping[str, Any], check: Mapping[str, Any]) -> Iterator[Run]:
    streams = request["path"] in _STREAMING and isinstance(request.get("body"), dict)
    for mode in case.get("modes", [None]) if streams else [None]:
        words = " ".join(word for word in (name, mode) if word)
        sent = request if mode is None else {**request, "body": {**request["body"], "stream": mode == "stream"}}
        yield Run(case["id"], words, sent, check, tuple(case["needs"]), case.get("repeat", 1), case["expect"])
