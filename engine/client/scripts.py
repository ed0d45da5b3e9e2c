"""Calls of a script that makes its attempts itself."""

from engine.client.transport import Transport
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.scripts import (
    CloseOutside,
    LogOutside,
    OpenOutside,
    OutsideRun,
    Trained,
    TrainGroups,
)


class OutsideCalls(Transport):
    """Calls of an external script about its run: open, train, log, close."""

    async def open_outside(self, request: OpenOutside) -> OutsideRun:
        """Returns when the model is loaded: that takes as long as it takes."""
        return await self._ask("POST", "/outside", OutsideRun, body=request, timeout=None)

    async def train_outside(self, run_id: str, request: TrainGroups) -> Trained:
        """Train one step; returns when it is stored. The same key never trains twice."""
        path = f"/runs/{run_id}/outside/train"
        return await self._ask("POST", path, Trained, body=request, timeout=None)

    async def log_outside(self, run_id: str, request: LogOutside) -> None:
        """Returns when it is on record. The same key is never stored twice."""
        body = request.model_dump_json().encode()
        await self._send("POST", f"/runs/{run_id}/outside/log", content=body, timeout=None)

    async def close_outside(self, run_id: str, request: CloseOutside) -> RunSummary:
        """Returns when the run has said its last word. The key is in the body."""
        return await self._ask("POST", f"/runs/{run_id}/outside/close", RunSummary, body=request)
