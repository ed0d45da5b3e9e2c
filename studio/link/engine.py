"""Connection to the engine of a local workspace: find or start it, send requests, stream runs.
`client` belongs to the caller's event loop (the studio's Qt loop), streams to the event pump's."""

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
    """Connection to at most one engine. After a loss it is found again; an engine that has ended is
    started only on request."""

    def __init__(self, workspace: Path, python: str | None, listener: Listener) -> None:
        self.workspace = workspace
        self.python = python
        self.pump = EventPump(self.find, listener)
        self.endpoint: Endpoint | None = None
        self._client: EngineClient | None = None

    @property
    def client(self) -> EngineClient:
        """Client of the engine. Raises LaunchError while no engine is open."""
        if self._client is None:
            raise LaunchError.of(
                "engine.unreachable", "No engine is connected.", "Start the engine in Settings."
            )
        return self._client

    async def find(self) -> Endpoint | None:
        """Find the running engine of the workspace; None if there is none."""
        return await local.find(self.workspace)

    async def open(self) -> Endpoint:
        """Find the running engine, or start one. Raises LaunchError with the engine's output."""
        endpoint = await local.find_or_start(self.workspace, self.python)
        await self._use(endpoint)
        self.pump.nudge()
        return endpoint

    async def reopen(self) -> bool:
        """Connect to the running engine again after a loss. Returns False if there is none."""
        endpoint = await self.find()
        if endpoint is not None:
            await self._use(endpoint)
        return endpoint is not None

    async def shut_down(self) -> None:
        """Stop the engine and wait up to `LEAVING_S` seconds until it is gone; returns in either
        case. Its runs stop after pending writes."""
        gone = self.endpoint
        await self.client.shut_down()
        await self._drop()
        end = time.monotonic() + LEAVING_S
        while gone is not None and time.monotonic() < end:
            endpoint = await self.find()
            if endpoint is None or endpoint.pid != gone.pid:
                return
            await asyncio.sleep(0.05)

    def kill(self) -> None:
        """Send SIGTERM to an engine that no longer responds; stored data is not lost."""
        if self.endpoint is not None:
            os.kill(self.endpoint.pid, signal.SIGTERM)

    async def close(self) -> None:
        """Close the connection; the engine and its runs continue."""
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
