"""Cleanup of asynchronous code: close resources, cancel tasks, finish what must not be cut off."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Coroutine
from typing import Any, Protocol, TypeVar


class Closeable(Protocol):
    def close(self) -> Awaitable[None]: ...


T = TypeVar("T", bound=Closeable)
R = TypeVar("R")


@contextlib.asynccontextmanager
async def closing(resource: T) -> AsyncIterator[T]:
    """Await `resource.close()` when the block ends; a cancellation does not interrupt the
    closing."""
    try:
        yield resource
    finally:
        await asyncio.shield(resource.close())


async def cancel(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have ended; their results and errors are dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def finished(work: Coroutine[Any, Any, R]) -> R:
    """Await `work` to its end and return its result. A cancellation of the caller does not cancel
    `work`; it is raised when `work` has ended."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled() and (problem := task.exception()):
        cancelled.add_note(f"and the work that it waited for failed: {problem!r}")
    raise cancelled
