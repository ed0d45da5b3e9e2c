"""A call that waits: what a person does meanwhile is what a test is about."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from studio.services.session import Session


class Held:
    """In place of a call: it is made when `on` is set. `asked` says that somebody waits for it."""

    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        self._call = call
        self.asked, self.on = asyncio.Event(), asyncio.Event()

    async def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.asked.set()
        await self.on.wait()
        return await self._call(*arguments, **named)


class HasSession(Protocol):
    """The studio, or a page of it."""

    session: Session


def hold(whose: HasSession, name: str) -> Held:
    """A call of the engine's client."""
    held = Held(getattr(whose.session.client, name))
    setattr(whose.session.client, name, held)
    return held
