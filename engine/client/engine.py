"""Calls about the engine itself."""

import json

from engine.client.transport import Transport
from engine.protocol.records.backends import BackendFacts
from engine.protocol.records.choices import ModelInfo
from engine.protocol.records.hardware import Check
from engine.protocol.requests.runs import EngineInfo


class EngineCalls(Transport):
    """Calls about the engine: facts, keys, shutdown."""

    async def info(self) -> EngineInfo:
        return await self._ask("GET", "/engine", EngineInfo)

    async def shut_down(self) -> None:
        """Ask the engine to stop its runs after what is acknowledged, and exit."""
        await self._send("POST", "/engine/shutdown")

    async def lend_keys(self, keys: dict[str, str]) -> None:
        """API keys of judges by provider; the engine keeps them in memory only."""
        body = json.dumps({"keys": keys}).encode()
        await self._send("POST", "/keys", content=body)

    async def doctor(self) -> list[Check]:
        return await self._list("/doctor", Check)

    async def models(self) -> list[ModelInfo]:
        return await self._list("/models", ModelInfo)

    async def backends(self) -> BackendFacts:
        """Backends for sampling and training that the engine has."""
        return await self._ask("GET", "/backends", BackendFacts)
