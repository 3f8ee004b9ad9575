"""Reading a stream of server-sent events as strictly as the strictest client."""

from __future__ import annotations

import json
from typing import Any

import httpx


def events(response: httpx.Response) -> list[Any]:
    """Data lines as JSON; `[DONE]` stays a string. Lines are split the Unicode way on purpose."""
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    found: list[Any] = []
    for line in response.text.splitlines():
        if line.startswith("data: "):
            found.append("[DONE]" if line == "data: [DONE]" else json.loads(line.removeprefix("data: ")))
        else:
            assert line == "" or line.startswith(":")
    return found


def choices(found: list[Any], index: int = 0) -> list[Any]:
    """Choices of one index, in order."""
    chunks = [one for one in found if isinstance(one, dict)]
    return [choice for one in chunks for choice in one.get("choices", []) if choice["index"] == index]


def text(found: list[Any], index: int = 0, key: str = "content") -> str:
    """Joined text of one choice."""
    deltas = [one.get("delta", one) for one in choices(found, index)]
    return "".join(delta.get(key) or "" for delta in deltas)


def check_envelope(response: httpx.Response) -> dict[str, Any]:
    """The error object, once its shape and headers are seen to be right."""
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    body = response.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    return error
