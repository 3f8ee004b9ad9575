"""The server under test: raw HTTP, and what a case's placeholders stand for."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

__all__ = ["Answer", "Target"]

_TOKENS = re.compile(r"\$TEXT_OF_TOKENS:(\w+)(-\d+)?")


@dataclass
class Answer:
    """A response, read whole."""

    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as JSON; NaN and Infinity are not."""
        return json.loads(self.body, parse_constant=_no_constant)

    @property
    def is_stream(self) -> bool:
        """Whether it is server-sent events."""
        return str(self.headers.get("content-type", "")).startswith("text/event-stream")

    def data_lines(self) -> list[str]:
        """Payloads of the data lines, in order."""
        lines = self.text.split("\n")
        return [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]

    def chunks(self) -> list[Any]:
        """The data lines as JSON, without `[DONE]`."""
        return [json.loads(line, parse_constant=_no_constant) for line in self.data_lines() if line != "[DONE]"]


def _no_constant(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


@dataclass
class Target:
    """Where to send, and what the server has."""

    client: httpx.AsyncClient
    models: Mapping[str, str]
    """Names of `$CHAT_MODEL` and the other placeholders, without the dollar."""
    api_key: str = ""
    max_model_len: int = 4096
    before_next: Callable[[], None] = lambda: None
    """Called before the request that shows that the server still lives."""
    _texts: dict[int, str] = field(default_factory=dict)

    async def send(self, request: Mapping[str, Any], **changes: Any) -> Answer:
        """Sends a case's request.

        Args:
            request: As the case has it.
            **changes: Keys of its body that differ.
        """
        headers = dict(request.get("headers", {}))
        if self.api_key and not request.get("no_api_key") and "authorization" not in headers:
            headers["authorization"] = f"Bearer {self.api_key}"
        content = await self._content(request, changes)
        if "body" in request:
            headers.setdefault("content-type", "application/json")
        url = request["path"]
        async with self.client.stream(request["method"], url, content=content, headers=headers) as response:
            return Answer(response.status_code, response.headers, await response.aread())

    async def _content(self, request: Mapping[str, Any], changes: Mapping[str, Any]) -> bytes | None:
        if "raw_body_base64" in request:
            return base64.b64decode(request["raw_body_base64"])
        if "raw_body_parts" in request:
            return "".join(text * count for text, count in request["raw_body_parts"]).encode()
        if "raw_body" in request:
            return self._named(request["raw_body"]).encode()
        if "body" not in request:
            return None
        body = await self._filled(request["body"])
        return json.dumps({key: one for key, one in {**body, **changes}.items() if one is not ...}).encode()

    def _named(self, text: str) -> str:
        for name, value in self.models.items():
            text = text.replace(f"${name}", value)
        return text

    async def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: await self._filled(one) for key, one in value.items()}
        if isinstance(value, list):
            return [await self._filled(one) for one in value]
        if not isinstance(value, str):
            return value
        if value.startswith("$TOKEN_IDS:"):
            return (await self._tokenize(value.removeprefix("$TOKEN_IDS:")))["tokens"]
        length = _TOKENS.fullmatch(value)
        if length:
            base = self.max_model_len if length[1] == "max_model_len" else int(length[1])
            return await self._text_of(base + int(length[2] or 0))
        return self._named(value)

    async def _tokenize(self, text: str) -> Any:
        body = {"model": self.models.get("COMPLETION_MODEL"), "prompt": text}
        answer = await self.send({"method": "POST", "path": "/tokenize", "body": body})
        if answer.status != 200:
            raise AssertionError("the server has no /tokenize, which this case needs")
        return answer.json()

    async def _text_of(self, tokens: int) -> str:
        """A text of that many tokens, special ones among them, by asking."""
        if tokens not in self._texts:
            one, two = [await self._count(" ".join(["hello"] * words)) for words in (1, 2)]
            text = " ".join(["hello"] * (1 + (tokens - one) // (two - one)))
            self._texts[tokens] = text + "." * (tokens - await self._count(text))  # where a word is several tokens
        return self._texts[tokens]

    async def _count(self, text: str) -> int:
        count: int = (await self._tokenize(text))["count"]
        return count

    async def still_answers(self) -> Answer:
        """The answer to a plain valid request."""
        self.before_next()
        body = {"model": "$CHAT_MODEL", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
        return await self.send({"method": "POST", "path": "/v1/chat/completions", "body": body})
