"""Calls about sweeps: plan, start, list, view, events and commands."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from engine.client.transport import Transport
from engine.protocol.records.sweeps import SweepPlan, SweepSummary, SweepView
from engine.protocol.requests.sweeps import ActOnSweep, StartSweep

CHECKING_S = 300.0
"""Timeout in seconds: the agent's packages may have to be checked first."""


class SweepCalls(Transport):
    """Calls about sweeps."""

    async def plan_sweep(self, request: StartSweep) -> SweepPlan:
        """Plan of the sweep that this request would start. Raises Refused with the first problem of
        its settings."""
        return await self._ask("POST", "/sweeps/plan", SweepPlan, body=request, timeout=CHECKING_S)

    async def start_sweep(self, request: StartSweep) -> SweepView:
        """Start a sweep; it waits while another run uses the device."""
        return await self._ask("POST", "/sweeps", SweepView, body=request, timeout=CHECKING_S)

    async def sweeps(self, project: str | None = None) -> list[SweepSummary]:
        """Sweeps of one project folder, or all that the engine knows, newest first."""
        params = {"project": project} if project else None
        return await self._list("/sweeps", SweepSummary, params=params)

    async def sweep(self, sweep_id: str) -> SweepView:
        return await self._ask("GET", f"/sweeps/{sweep_id}", SweepView)

    async def act_on_sweep(self, sweep_id: str, request: ActOnSweep) -> SweepView:
        """Pause, stop or resume a sweep."""
        return await self._ask("POST", f"/sweeps/{sweep_id}", SweepView, body=request)

    async def sweep_events(self, sweep_id: str, after: int = 0) -> AsyncGenerator[SweepView, None]:
        """Yield the sweep after each change with a revision above `after`, until the engine closes
        the stream or is silent. To resume, pass the last revision."""
        async with aclosing(self._streamed(f"/sweeps/{sweep_id}/events", after=after)) as lines:
            async for line in lines:
                yield SweepView.model_validate_json(line)
