"""Hooks of schemathesis: answers are kept short, so that a run ends, and what would stop the server is left out."""

from __future__ import annotations

from typing import Any

import schemathesis

_MODEL = "smollm2-135m"
_MOST = 4
# Where each endpoint has the number of tokens to generate.
_LIMITS: dict[str, tuple[str, ...]] = {
    "/v1/chat/completions": ("max_tokens", "max_completion_tokens"),
    "/v1/completions": ("max_tokens",),
    "/v1/messages": ("max_tokens",),
    "/v1/responses": ("max_output_tokens",),
}
_NATIVE = ("chat", "streamChat", "generate", "streamGenerate")


def _limit(path: str, body: dict[str, Any]) -> None:
    if path.startswith("/tokenwire/v1/") and path.endswith(_NATIVE):
        if body.get("sampling") is None:
            body["sampling"] = {}
        # Another type stays: it is refused before anything runs.
        if isinstance(body["sampling"], dict):
            body["sampling"] = dict(body["sampling"])
            _cap(body["sampling"], "maxTokens", "max_tokens")
    elif path in _LIMITS:
        _cap(body, *_LIMITS[path])


def _cap(body: dict[str, Any], name: str, *others: str) -> None:
    """Brings a limit down where it is above, and sets one where there is none; a wrong value stays wrong."""
    for one in (name, *others):
        value = body.get(one)
        # Protobuf's JSON takes numbers as texts too.
        if isinstance(value, str) and value.lstrip("-+").replace(".", "").isdigit():
            value = float(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > _MOST:
            body[one] = _MOST
    if all(body.get(one) is None for one in (name, *others)):
        body[name] = _MOST


@schemathesis.hook
def map_case(context: schemathesis.HookContext, case: schemathesis.Case) -> schemathesis.Case:
    """Caps what is generated, and names the served model in three of four cases, so that most get past it."""
    if isinstance(case.body, dict):
        body = dict(case.body)
        _limit(case.operation.path, body)
        if isinstance(body.get("model"), str) and len(body["model"]) % 4:
            body["model"] = _MODEL
        case.body = body
    return case
