"""Watcher of the engine's list of servers, by long polling: the request returns when the list is
newer than the known one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from engine.client import EngineClient
from engine.protocol.problems import AtelierError, LaunchError
from engine.protocol.requests.remote import HostList
from studio.link.backoff import Backoff

log = logging.getLogger(__name__)

WAIT_S = 20.0
LEAST_S = 0.1
"""Minimum seconds between two requests, since the progress of an upload changes the list often."""


class HostWatcher:
    """Long poll of the list of servers; `run` it in the pump's loop. `client` raises LaunchError
    while there is no engine; `broken` is called when the connection is lost."""

    def __init__(
        self,
        client: Callable[[], Awaitable[EngineClient]],
        on_change: Callable[[HostList], None],
        broken: Callable[[], None],
    ) -> None:
        self._client, self._on_change, self._broken = client, on_change, broken
        self._last_client: EngineClient | None = None
        self._revision = 0

    async def run(self) -> None:
        """Poll the engine's list of servers until cancelled, and pass on each change. A failed poll
        is repeated after a delay; the event pump reports the state of the connection."""
        backoff = Backoff()
        while True:
            try:
                await self._ask()
                backoff.worked()
                await asyncio.sleep(LEAST_S)
            except AtelierError:
                await asyncio.sleep(backoff.failed())
            except Exception:
                log.exception("the engine's list of servers cannot be read")
                await asyncio.sleep(backoff.failed())

    async def _ask(self) -> None:
        client = await self._client()
        if client is not self._last_client:  # another engine counts from 1 again
            self._last_client, self._revision = client, 0
        try:
            hosts = await client.hosts(self._revision, WAIT_S)
        except LaunchError:
            self._broken()
            raise
        if hosts.revision != self._revision:
            self._revision = hosts.revision
            self._on_change(hosts)
