"""How judges and other providers are reached: by a process of ours that holds the keys, or through
the home machine, which keeps them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.child import Child
from engine.environments import python_of

ROOT = Path(__file__).parents[2]

Errand = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""(op, fields): the answer of a process at home, however long that takes."""


class Speaker(Protocol):
    """Whoever speaks to providers: what engine/judge/worker.py can be asked."""

    @property
    def alive(self) -> bool: ...

    @property
    def pid(self) -> int: ...

    async def ask(self, op: str, **fields: Any) -> Any: ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class Access:
    """Of one run. `keys` by provider, in memory only; with `errand` none are needed here."""

    keys: Mapping[str, str]
    errand: Errand | None = None

    async def open(self, name: str, log: Path) -> Speaker:
        """A speaker that has the keys, or knows who has them."""
        if self.errand:
            return AtHome(self.errand)
        child = await start_worker(name, log)
        await self.lend(child)
        return child

    async def lend(self, speaker: Speaker) -> None:
        """The keys as they are now; those from before are forgotten."""
        if not self.errand:
            await speaker.ask("keys", keys=dict(self.keys))


class AtHome:
    """No process here: each question goes to the home machine."""

    alive, pid = True, 0

    def __init__(self, errand: Errand) -> None:
        self._errand = errand

    async def ask(self, op: str, **fields: Any) -> Any:
        return await self._errand(op, fields)

    async def close(self) -> None:
        """Nothing of it is here."""


async def start_worker(name: str, log: Path) -> Child:
    """The process that alone speaks to providers, in an environment of its own."""
    python = await asyncio.to_thread(python_of, "judge")
    argv = [str(python), "-m", "engine.judge.worker"]
    return await Child.spawn(name, argv, cwd=ROOT, log=log)
