"""Access to providers: through a worker process that holds the keys, or through the home
machine."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.environments import python_of
from engine.protocol.requests.trust import AddressConfirmation
from engine.runtime.child import Child
from engine.runtime.paths import ROOT
from engine.trust.addresses import sends_key

SENDING = ("ask", "chat")
"""Operations of the worker that send something to a provider."""
HomeRequest = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""(op, fields): the answer of a process at home, however long that takes."""


class ProviderClient(Protocol):
    """Interface of the worker process (engine/judge/providers/worker.py)."""

    @property
    def alive(self) -> bool: ...

    @property
    def pid(self) -> int: ...

    async def ask(self, op: str, **fields: Any) -> Any: ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class Access:
    """Access of one run to providers. `keys` by provider, in memory only; with `errand` none are
    needed here."""

    keys: Mapping[str, str]
    errand: HomeRequest | None = None
    confirmed: frozenset[AddressConfirmation] = frozenset()
    """Addresses that the person confirmed elsewhere, besides those of this machine."""

    async def open(self, name: str, log: Path) -> ProviderClient:
        """A speaker that has the keys, or knows who has them."""
        if self.errand:
            return HomeProxy(self.errand)
        worker = await start_worker(name, log, self.confirmed)
        await self.lend(worker)
        return worker

    async def lend(self, speaker: ProviderClient) -> None:
        """The keys as they are now; those from before are forgotten."""
        if not self.errand:
            await speaker.ask("keys", keys=dict(self.keys))


class HomeProxy:
    """No process here: each question goes to the home machine."""

    alive, pid = True, 0

    def __init__(self, errand: HomeRequest) -> None:
        self._errand = errand

    async def ask(self, op: str, **fields: Any) -> Any:
        return await self._errand(op, fields)

    async def close(self) -> None:
        """Nothing of it is here."""


class BoundWorker:
    """The process that alone speaks to providers. Every question passes here, and goes to no
    address that its provider's key is not bound to."""

    def __init__(self, child: Child, confirmed: frozenset[AddressConfirmation]) -> None:
        self._child, self._confirmed = child, confirmed

    @property
    def alive(self) -> bool:
        return self._child.alive

    @property
    def pid(self) -> int:
        return self._child.pid

    async def ask(self, op: str, **fields: Any) -> Any:
        """Raises ConfigError for an address that is not confirmed, or a name that is no model's."""
        if op in SENDING:
            fields["with_key"] = await asyncio.to_thread(
                sends_key, fields["model"], fields["base_url"], self._confirmed
            )
        return await self._child.ask(op, **fields)

    async def close(self) -> None:
        await self._child.close()

    async def kill(self) -> None:
        """End it without grace."""
        await self._child.kill()


async def start_worker(
    name: str, log: Path, confirmed: frozenset[AddressConfirmation] = frozenset()
) -> BoundWorker:
    """A process in an environment of its own, without keys yet."""
    python = await asyncio.to_thread(python_of, "judge")
    argv = [str(python), "-m", "engine.judge.providers.worker"]
    return BoundWorker(await Child.spawn(name, argv, cwd=ROOT, log=log), confirmed)
