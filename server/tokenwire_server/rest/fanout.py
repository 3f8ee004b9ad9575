"""Several backend calls for one request, as one: completions with a list of prompts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

__all__ = ["gather", "merge"]

_T = TypeVar("_T")


async def gather(calls: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Results in order. The first failure cancels the others and is raised once they have stopped."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def merge(streams: Sequence[AsyncGenerator[_T, None]]) -> AsyncGenerator[tuple[int, _T], None]:
    """Events of all streams as they come, each with the number of its stream. The first failure ends all.

    At most one event of each stream waits here, so that a slow reader holds back the engine and not this memory.
    """
    if len(streams) == 1:
        async with aclosing(streams[0]) as events:
            async for event in events:
                yield 0, event
        return
    queue: asyncio.Queue[tuple[int, _T | None]] = asyncio.Queue()
    room = [asyncio.Semaphore(1) for _ in streams]
    tasks = [asyncio.ensure_future(_drain(index, stream, queue, room[index])) for index, stream in enumerate(streams)]
    still_open = len(streams)
    try:
        while still_open:
            index, item = await queue.get()
            if item is None:
                still_open -= 1
                await tasks[index]  # raises what ended it
            else:
                yield index, item
                room[index].release()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _drain(
    index: int,
    stream: AsyncGenerator[_T, None],
    queue: asyncio.Queue[tuple[int, _T | None]],
    room: asyncio.Semaphore,
) -> None:
    try:
        async with aclosing(stream) as events:
            async for event in events:
                await room.acquire()
                queue.put_nowait((index, event))
    finally:
        queue.put_nowait((index, None))
