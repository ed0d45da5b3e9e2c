"""Calls that wait until a test releases them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from studio.services.session import Session


class Held:
    """Replacement of a call: executed once `on` is set; `asked` is set when it was requested."""

    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        self._call = call
        self.asked, self.on = asyncio.Event(), asyncio.Event()

    async def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.asked.set()
        await self.on.wait()
        return await self._call(*arguments, **named)


class HasSession(Protocol):
    """Studio, or a page of it."""

    session: Session


def hold(owner: HasSession, name: str) -> Held:
    """Replace a call of the engine's client with a `Held`."""
    held = Held(getattr(owner.session.client, name))
    setattr(owner.session.client, name, held)
    return held
