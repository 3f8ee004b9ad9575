"""Tries `instructor` on a service: instructor_program.py BASE_URL MODEL. Prints what came back, as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from typing import Any

import instructor
import openai
from pydantic import BaseModel, field_validator

TELL: list[Any] = [{"role": "user", "content": "Tell me of 'Genoa' with 558000 people"}]
MODES = ("TOOLS", "TOOLS_STRICT", "JSON", "JSON_SCHEMA", "MD_JSON", "RESPONSES_TOOLS")


class City(BaseModel):
    """A city."""

    name: str
    population: int


def main(base_url: str, model: str) -> dict[str, Any]:
    """Runs everything in turn."""
    said: dict[str, Any] = {}
    with openai.OpenAI(base_url=base_url, api_key="none", timeout=60, max_retries=0) as client:
        chat = instructor.from_openai(client)
        hello: list[Any] = [{"role": "user", "content": "Say 'Genoa'"}]
        said["chat"] = chat.create(model=model, messages=hello, response_model=str)
        said["partial"] = [
            one.model_dump() for one in chat.create_partial(model=model, messages=TELL, response_model=City)
        ]
        said["iterable"] = [
            one.model_dump() for one in chat.create_iterable(model=model, messages=TELL, response_model=City)
        ]
        parsed, raw = chat.create_with_completion(model=model, messages=TELL, response_model=City)
        said["with_completion"] = [parsed.model_dump(), raw.choices[0].finish_reason]
        said["asked_again"] = _asked_again(chat, model)
        for mode in MODES:
            made = instructor.from_openai(client, mode=instructor.Mode[mode])
            said[mode] = made.create(model=model, messages=TELL, response_model=City).model_dump()
        try:
            chat.create(model="nobody", messages=TELL, response_model=City, max_retries=0)
        except Exception as error:  # noqa: BLE001  # which one it is, is what is asked
            causes = [error, error.__cause__, *(one.exception for one in getattr(error, "failed_attempts", None) or ())]
            said["unknown_model"] = [type(one).__name__ for one in causes]
    said["async"] = asyncio.run(_asynchronous(base_url, model))
    return said


def _asked_again(chat: Any, model: str) -> dict[str, Any]:
    """A call whose arguments are refused is answered with the reason, and made again."""
    refused: list[str] = []

    class Doubted(City):
        @field_validator("name")
        @classmethod
        def doubt(cls, name: str) -> str:
            if not refused:
                refused.append(name)
                raise ValueError("say it once more")
            return name

    found = chat.create(model=model, messages=TELL, response_model=Doubted, max_retries=2)
    return {"refused": refused, "name": found.name}


async def _asynchronous(base_url: str, model: str) -> Any:
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", timeout=60, max_retries=0) as client:
        made = instructor.from_openai(client)
        found = await made.create(model=model, messages=TELL, response_model=Iterable[City])
        return [one.model_dump() async for one in found]


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
