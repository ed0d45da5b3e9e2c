"""The engine of a workspace on this machine: find or start it, call it, follow its runs.

`client` belongs to the caller's event loop (the studio's Qt loop); streams live in the pump.
"""

import asyncio
import os
import signal
import time
from pathlib import Path

from engine.client import EngineClient
from engine.launcher import local
from engine.launcher.local import Endpoint
from engine.protocol.problems import LaunchError
from studio.link.event_pump import EventPump, Listener

LEAVING_S = 10.0


class EngineLink:
    """At most one engine; lost ones are found again, dead ones started only when asked."""

    def __init__(self, workspace: Path, python: str | None, listener: Listener) -> None:
        self.workspace = workspace
        self.python = python
        self.pump = EventPump(self.find, listener)
        self.endpoint: Endpoint | None = None
        self._client: EngineClient | None = None

    @property
    def client(self) -> EngineClient:
        """Raises LaunchError while no engine is open."""
        if self._client is None:
            raise LaunchError.of(
                "engine.unreachable", "No engine is connected.", "Start it from Settings."
            )
        return self._client

    async def find(self) -> Endpoint | None:
        return await local.find(self.workspace)

    async def open(self) -> Endpoint:
        """Find the living engine, or start one. Raises LaunchError with what it said."""
        endpoint = await local.find_or_start(self.workspace, self.python)
        await self._use(endpoint)
        self.pump.nudge()
        return endpoint

    async def reopen(self) -> bool:
        """After the link came back: use the engine that lives now. False when there is none."""
        endpoint = await self.find()
        if endpoint is not None:
            await self._use(endpoint)
        return endpoint is not None

    async def shut_down(self) -> None:
        """Ask the engine to end, and wait until nobody finds it any more; its runs stop after what
        is acknowledged."""
        gone = self.endpoint
        await self.client.shut_down()
        await self._drop()
        end = time.monotonic() + LEAVING_S
        while gone is not None and time.monotonic() < end:
            found = await self.find()
            if found is None or found.pid != gone.pid:
                return
            await asyncio.sleep(0.05)

    def kill(self) -> None:
        """Last resort for an engine that no longer answers: nothing acknowledged is lost."""
        if self.endpoint is not None:
            os.kill(self.endpoint.pid, signal.SIGTERM)

    async def close(self) -> None:
        """Let go of the engine; it and its runs live on."""
        self.pump.stop()
        await self._drop()

    async def _use(self, endpoint: Endpoint) -> None:
        if endpoint != self.endpoint or self._client is None:
            await self._drop()
            self.endpoint = endpoint
            self._client = EngineClient(endpoint.port, endpoint.token)

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()
