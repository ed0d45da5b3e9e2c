"""Cleanup of asynchronous code: close resources and cancel tasks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Protocol, TypeVar


class Closeable(Protocol):
    def close(self) -> Awaitable[None]: ...


T = TypeVar("T", bound=Closeable)


@contextlib.asynccontextmanager
async def closing(resource: T) -> AsyncIterator[T]:
    """Await `resource.close()` when the block ends; a cancellation does not interrupt it."""
    try:
        yield resource
    finally:
        await asyncio.shield(resource.close())


async def cancel(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have ended; their results and errors are dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
