"""Access to providers: through a worker process with the API keys, or through the machine of the
person."""

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.environments import python_of
from engine.judge.providers.fork_server import launcher
from engine.protocol.requests.trust import AddressConfirmation
from engine.runtime.child import Child
from engine.runtime.paths import ROOT
from engine.trust.addresses import sends_key

SENDING = ("ask", "chat")
"""Operations of the worker that send data to a provider."""
HomeRequest = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""(op, fields) → response of the worker on the home machine; waits while disconnected."""


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
    """Access of one run to providers. `keys` by provider, in memory only. With `ask_home`, calls
    go through the home machine, which has the keys."""

    keys: Mapping[str, str]
    ask_home: HomeRequest | None = None
    confirmed: frozenset[AddressConfirmation] = frozenset()
    """Addresses confirmed on another machine, in addition to those of this one."""

    async def open(self, name: str, log: Path) -> ProviderClient:
        """Start the process `name` that calls providers with the keys, and logs to `log`. If the
        keys are on the user's machine instead (`ask_home`), return a client of the worker there."""
        if self.ask_home:
            return HomeProxy(self.ask_home)
        worker = await start_worker(name, log, self.confirmed)
        await self.lend(worker)
        return worker

    async def lend(self, client: ProviderClient) -> None:
        """Replace the keys of a worker by the current ones."""
        if not self.ask_home:
            await client.ask("keys", keys=dict(self.keys))


class HomeProxy:
    """Client without a local process: each request goes to the home machine."""

    alive, pid = True, 0

    def __init__(self, ask_home: HomeRequest) -> None:
        self._ask_home = ask_home

    async def ask(self, op: str, **fields: Any) -> Any:
        return await self._ask_home(op, fields)

    async def close(self) -> None:
        """Do nothing: there is no local process."""


_living: "weakref.WeakSet[BoundWorker]" = weakref.WeakSet()


def living_pids() -> list[int]:
    """Return the PIDs of the running provider workers that this process has started."""
    return [worker.pid for worker in list(_living) if worker.alive]


class BoundWorker:
    """Worker process, the only one that contacts providers. A key is only sent to its provider, or
    to addresses confirmed for it."""

    def __init__(self, child: Child, confirmed: frozenset[AddressConfirmation]) -> None:
        self._child, self._confirmed = child, confirmed
        _living.add(self)

    @property
    def alive(self) -> bool:
        return self._child.alive

    @property
    def pid(self) -> int:
        return self._child.pid

    async def ask(self, op: str, **fields: Any) -> Any:
        """Send operation `op` with these arguments to the worker, and return its answer. Raises
        ConfigError for unconfirmed addresses or invalid model names."""
        if op in SENDING:
            fields["with_key"] = await asyncio.to_thread(
                sends_key, fields["model"], fields["base_url"], self._confirmed
            )
        return await self._child.ask(op, **fields)

    async def close(self) -> None:
        await self._child.close()

    async def kill(self) -> None:
        await self._child.kill()


async def start_worker(
    name: str, log: Path, confirmed: frozenset[AddressConfirmation] = frozenset()
) -> BoundWorker:
    """Start worker `name` in the `judge` environment, without API keys. `confirmed`: addresses that
    may get keys, besides those stored on this machine."""
    python = await asyncio.to_thread(python_of, "judge")
    argv = [str(python), "-m", "engine.judge.providers.worker"]
    child = await Child.spawn(name, argv, cwd=ROOT, log=log, start=launcher(python))
    return BoundWorker(child, confirmed)
