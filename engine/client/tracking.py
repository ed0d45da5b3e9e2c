"""Calls about trackers: how those of a run are, and sending what they lack."""

import json
from collections.abc import Sequence

from engine.client.transport import Transport
from engine.protocol.config.tracking import TrackerList, TrackerName
from engine.protocol.requests.runs import TrackRun


class TrackCalls(Transport):
    """Calls about experiment tracking."""

    async def trackers(self, run_id: str) -> TrackerList:
        """Trackers that are, were or should have been sent the run."""
        return await self._ask("GET", f"/runs/{run_id}/trackers", TrackerList)

    async def track(self, run_id: str, to: Sequence[TrackerName] = ()) -> TrackerList:
        """Begin to send what has not been sent; none named: to all that the project wants."""
        asked = TrackRun(to=list(to))
        return await self._ask("POST", f"/runs/{run_id}/track", TrackerList, body=asked)

    async def lend_tracker_keys(self, keys: dict[str, str]) -> None:
        """API keys by tracker; the engine keeps them in memory only."""
        await self._send("POST", "/keys", content=json.dumps({"trackers": keys}).encode())
