"""Close asynchronous resources when a block ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Protocol, TypeVar


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
