"""Calls about runs: start them, steer them, read and follow what they have stored."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from engine.client.transport import Transport
from engine.protocol.events.history import MARK, History
from engine.protocol.events.run import Event, UnknownEvent, decode
from engine.protocol.records.comparison import EvaluationResult
from engine.protocol.records.curves import CurvePage, CurveQuery
from engine.protocol.records.demonstrations import SelectDemonstrations, Selection
from engine.protocol.records.runs import RunSummary, Split, Trajectory
from engine.protocol.requests.runs import (
    Command,
    GroupPage,
    Siblings,
    StartEvaluation,
    StartRun,
    TrajectoryPage,
    TrajectoryQuery,
)

STARTING_S = 300.0
"""The judge's environment may have to be installed first."""


class RunCalls(Transport):
    """Calls about runs."""

    async def runs(self, project: str | None = None) -> list[RunSummary]:
        """Newest first; of one project folder, or of all that the engine knows."""
        return await self._list(
            "/runs", RunSummary, params={"project": project} if project else None
        )

    async def start_run(self, request: StartRun) -> RunSummary:
        """A branch copies what its parent has stored: that may take minutes. On a server, model and
        project go up first: that takes as long as it takes."""
        limit = None if request.host else STARTING_S
        return await self._ask("POST", "/runs", RunSummary, body=request, timeout=limit)

    async def start_evaluation(self, request: StartEvaluation) -> RunSummary:
        """Compare models; it goes on as a run does."""
        limit = None if request.host else STARTING_S
        return await self._ask("POST", "/evaluations", RunSummary, body=request, timeout=limit)

    async def evaluation(self, run_id: str) -> EvaluationResult:
        """Results of an evaluation so far."""
        return await self._ask("GET", f"/runs/{run_id}/evaluation", EvaluationResult)

    async def demonstrate(self, run_id: str, request: SelectDemonstrations) -> Selection:
        """Write good trajectories of a run as demonstrations of its project."""
        path = f"/runs/{run_id}/demonstrations"
        return await self._ask("POST", path, Selection, body=request, timeout=STARTING_S)

    async def run(self, run_id: str) -> RunSummary:
        return await self._ask("GET", f"/runs/{run_id}", RunSummary)

    async def repair_run(self, run_id: str) -> RunSummary:
        """Recover a damaged run up to the damage."""
        return await self._ask("POST", f"/runs/{run_id}/repair", RunSummary, timeout=STARTING_S)

    async def remove_run(self, run_id: str) -> None:
        """Delete a run on which nobody works, with its checkpoints."""
        await self._send("DELETE", f"/runs/{run_id}")

    async def command(self, run_id: str, command: Command) -> RunSummary:
        return await self._ask("POST", f"/runs/{run_id}/command", RunSummary, body=command)

    async def trajectories(self, run_id: str, query: TrajectoryQuery) -> TrajectoryPage:
        return await self._ask("POST", f"/runs/{run_id}/trajectories", TrajectoryPage, body=query)

    async def trajectory(self, run_id: str, trajectory_id: str) -> Trajectory:
        return await self._ask("GET", f"/runs/{run_id}/trajectories/{trajectory_id}", Trajectory)

    async def groups(self, run_id: str, query: TrajectoryQuery) -> GroupPage:
        """Groups that hold a match of the query's filters, newest first."""
        return await self._ask("POST", f"/runs/{run_id}/groups", GroupPage, body=query)

    async def curves(self, run_id: str, query: CurveQuery) -> CurvePage:
        """Reward statistics per scenario over time."""
        return await self._ask("POST", f"/runs/{run_id}/scenarios", CurvePage, body=query)

    async def siblings(self, run_id: str, split: Split, step: int, group: int) -> Siblings:
        return await self._ask("GET", f"/runs/{run_id}/groups/{split}/{step}/{group}", Siblings)

    async def log(self, run_id: str) -> str:
        """The end of the run's log: what engine, policy and agents wrote."""
        return (await self._send("GET", f"/runs/{run_id}/log")).text

    async def events(
        self, run_id: str, after: int = 0
    ) -> AsyncGenerator[Event | UnknownEvent, None]:
        """Replay from `after`, then follow, until the engine closes the stream or falls silent.

        Events with a `seq` arrive once and in order: the caller keeps the last one it has used and
        asks again from there.
        """
        async with aclosing(self._streamed(f"/runs/{run_id}/events", after=after)) as lines:
            async for line in lines:
                yield decode(line)

    async def told(
        self, run_id: str, after: int = 0
    ) -> AsyncGenerator[Event | UnknownEvent | History, None]:
        """As `events`, for whoever only folds them: what is far in the past comes in long
        stretches."""
        path = f"/runs/{run_id}/events"
        async with aclosing(self._streamed(path, after=after, brief=1)) as lines:
            async for line in lines:
                if line.startswith(MARK):
                    yield await asyncio.to_thread(_history, line)
                else:
                    yield decode(line)


def _history(line: str) -> History:
    """With its events decoded."""
    history = History.model_validate_json(line)
    _ = history.events
    return history
