"""Ask many things at a time: python client_async.py [target]."""

from __future__ import annotations

import asyncio
import sys

import tokenwire

WORDS = ["sea", "sky", "moss", "rain", "salt"]


async def tell(client: tokenwire.AsyncClient, word: str) -> str:
    async with client.stream_chat(f"Say something about {word}.", max_tokens=64) as stream:
        async for _ in stream:
            pass
    return f"{word}: {stream.text}"


async def main(target: str) -> None:
    # Two connections, since a proxy may allow no more than 100 streams on one.
    async with tokenwire.AsyncClient(target, connections=2) as client:
        for line in await asyncio.gather(*(tell(client, word) for word in WORDS)):
            print(line)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9000"))
