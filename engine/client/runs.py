"""Calls about runs: start, commands, stored data, events, checkpoints, trackers and scripts."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated
from urllib.parse import quote

from pydantic import Field, TypeAdapter

from engine.client.transport import Transport
from engine.protocol.config.tracking import TrackerList, TrackerName
from engine.protocol.events.history import MARK, History
from engine.protocol.events.run import Event, UnknownEvent, decode
from engine.protocol.records.comparison import EvaluationResult, InspectLogs
from engine.protocol.records.curves import CurvePage, CurveQuery
from engine.protocol.records.demonstrations import SelectDemonstrations, Selection
from engine.protocol.records.run_notes import RunNotes
from engine.protocol.records.run_table import RunComparison, RunPage
from engine.protocol.records.runs import KeptCheckpoint, RunSummary, Split, Trajectory
from engine.protocol.requests.arena import ArenaTicked, AskArena, Tally
from engine.protocol.requests.exports import ExportCheckpoint, ExportReport, ExportTicked
from engine.protocol.requests.run_table import CompareRuns, RunQuery
from engine.protocol.requests.runs import (
    Command,
    ExportTrajectories,
    FilterNames,
    GroupPage,
    PinCheckpoint,
    Siblings,
    StartEvaluation,
    StartRun,
    TrackRun,
    TrajectoryLine,
    TrajectoryPage,
    TrajectoryQuery,
)
from engine.protocol.requests.scripts import (
    CloseOutside,
    LogOutside,
    OpenOutside,
    OutsideRun,
    Trained,
    TrainGroups,
)

STARTING_S = 300.0
"""Timeout in seconds: the judge's environment may have to be installed first."""
LOG_S = 600.0
MOST_LOG_BYTES = 2**31
_EXPORT: TypeAdapter[ExportTicked | ExportReport] = TypeAdapter(
    Annotated[ExportTicked | ExportReport, Field(discriminator="kind")]
)


class RunCalls(Transport):
    """Calls about runs."""

    async def runs(self, project: str | None = None, recent: bool = False) -> list[RunSummary]:
        """Runs of one project folder, or all runs that the engine knows, newest first. `recent`:
        only the newest and the active ones of each project."""
        params = ({"project": project} if project else {}) | ({"recent": "1"} if recent else {})
        return await self._list("/runs", RunSummary, params=params)

    async def run_page(self, query: RunQuery) -> RunPage:
        """Return one page of the table of a project's runs. The first call is slow if there are
        thousands of runs."""
        return await self._ask("POST", "/run_table", RunPage, body=query, timeout=STARTING_S)

    async def compare_runs(self, request: CompareRuns) -> RunComparison:
        return await self._ask("POST", "/run_comparison", RunComparison, body=request)

    async def note_run(self, run_id: str, notes: RunNotes) -> RunSummary:
        """Replace the notes of a run: tags, text, pinned, archived."""
        return await self._ask("PUT", f"/runs/{run_id}/notes", RunSummary, body=notes)

    async def start_run(self, request: StartRun) -> RunSummary:
        """Start a run. Copying the parent of a branch may take minutes; uploads to a remote server
        have no timeout."""
        limit = None if request.host else STARTING_S
        return await self._ask("POST", "/runs", RunSummary, body=request, timeout=limit)

    async def start_evaluation(self, request: StartEvaluation) -> RunSummary:
        """Start an evaluation of models; it can be resumed like a run."""
        limit = None if request.host else STARTING_S
        return await self._ask("POST", "/evaluations", RunSummary, body=request, timeout=limit)

    async def evaluation(self, run_id: str) -> EvaluationResult:
        return await self._ask("GET", f"/runs/{run_id}/evaluation", EvaluationResult)

    async def demonstrate(self, run_id: str, request: SelectDemonstrations) -> Selection:
        """Write selected trajectories of a run as demonstrations (SFT data) of its project."""
        path = f"/runs/{run_id}/demonstrations"
        return await self._ask("POST", path, Selection, body=request, timeout=STARTING_S)

    async def run(self, run_id: str) -> RunSummary:
        return await self._ask("GET", f"/runs/{run_id}", RunSummary)

    async def repair_run(self, run_id: str) -> RunSummary:
        """Recover a damaged run up to the point of damage."""
        return await self._ask("POST", f"/runs/{run_id}/repair", RunSummary, timeout=STARTING_S)

    async def remove_run(self, run_id: str) -> None:
        """Delete an inactive run with its checkpoints."""
        await self._send("DELETE", f"/runs/{run_id}")

    async def command(self, run_id: str, command: Command) -> RunSummary:
        return await self._ask("POST", f"/runs/{run_id}/command", RunSummary, body=command)

    async def trajectories(self, run_id: str, query: TrajectoryQuery) -> TrajectoryPage:
        return await self._ask("POST", f"/runs/{run_id}/trajectories", TrajectoryPage, body=query)

    async def trajectory(self, run_id: str, trajectory_id: str) -> Trajectory:
        return await self._ask("GET", f"/runs/{run_id}/trajectories/{trajectory_id}", Trajectory)

    def export_trajectories(
        self, run_id: str, request: ExportTrajectories
    ) -> AsyncGenerator[TrajectoryLine, None]:
        """Yield whole trajectories in order of arrival; closing the iterator cancels the rest."""
        return self._records(f"/runs/{run_id}/exported_trajectories", request, TrajectoryLine)

    async def filter_names(self, run_id: str) -> FilterNames:
        """Names that occur in a run: parts, metrics, tools, scenarios, labels and models."""
        return await self._ask("GET", f"/runs/{run_id}/filter_names", FilterNames)

    async def groups(self, run_id: str, query: TrajectoryQuery) -> GroupPage:
        """Groups with at least one trajectory that matches the query's filters, newest first."""
        return await self._ask("POST", f"/runs/{run_id}/groups", GroupPage, body=query)

    async def curves(self, run_id: str, query: CurveQuery) -> CurvePage:
        """Reward statistics per scenario over time, one page."""
        return await self._ask("POST", f"/runs/{run_id}/scenarios", CurvePage, body=query)

    async def siblings(self, run_id: str, split: Split, step: int, group: int) -> Siblings:
        return await self._ask("GET", f"/runs/{run_id}/groups/{split}/{step}/{group}", Siblings)

    async def image(self, run_id: str, image: str) -> bytes:
        """File of an image in the messages of a run, by its id: PNG, JPEG, WebP or GIF."""
        return (await self._send("GET", f"/runs/{run_id}/images/{quote(image, safe='')}")).content

    async def inspect_logs(self, run_id: str) -> InspectLogs:
        """Names of an evaluation's logs for Inspect. Raises Refused for other runs."""
        return await self._ask("GET", f"/runs/{run_id}/inspect", InspectLogs)

    async def inspect_log(self, run_id: str, number: int) -> bytes:
        """Content of the log of Inspect with the place `number` in `inspect_logs`."""
        path = f"/runs/{run_id}/inspect/{number}"
        return (await self._send("GET", path, MOST_LOG_BYTES, timeout=LOG_S)).content

    async def log(self, run_id: str) -> str:
        """End of the run's log, with output of engine, policy and agents."""
        return (await self._send("GET", f"/runs/{run_id}/log")).text

    async def events(
        self, run_id: str, after: int = 0
    ) -> AsyncGenerator[Event | UnknownEvent, None]:
        """Replay events after `after`, then follow, until the engine closes the stream or is
        silent. Events with a `seq` arrive once and in order. To resume, pass the last `seq` as
        `after`."""
        async with aclosing(self._streamed(f"/runs/{run_id}/events", after=after)) as lines:
            async for line in lines:
                yield decode(line)

    async def brief_events(
        self, run_id: str, after: int = 0
    ) -> AsyncGenerator[Event | UnknownEvent | History, None]:
        """Yield events after `after` like `events`, with old ones combined into `History` records,
        for callers that only compute the current state."""
        path = f"/runs/{run_id}/events"
        async with aclosing(self._streamed(path, after=after, brief=1)) as lines:
            async for line in lines:
                if line.startswith(MARK):
                    yield await asyncio.to_thread(_history, line)
                else:
                    yield decode(line)

    async def checkpoints(self, run_id: str) -> list[KeptCheckpoint]:
        """Checkpoints with the reasons why they are kept, oldest first."""
        return await self._list(f"/runs/{run_id}/checkpoints", KeptCheckpoint)

    async def pin_checkpoint(self, run_id: str, step: int, wish: PinCheckpoint) -> None:
        path = f"/runs/{run_id}/checkpoints/{step}/pin"
        await self._send("POST", path, content=wish.model_dump_json().encode())

    async def delete_checkpoint(self, run_id: str, step: int) -> None:
        """Delete a checkpoint. Raises Refused for the newest, from which the run resumes."""
        await self._send("DELETE", f"/runs/{run_id}/checkpoints/{step}")

    def export(
        self, run_id: str, step: int | None, request: ExportCheckpoint
    ) -> AsyncGenerator[ExportTicked | ExportReport, None]:
        """Export a checkpoint (None: the newest complete one): progress, then the report. Closing
        the iterator cancels it and removes partial files. Raises Refused with the reason."""
        path = f"/runs/{run_id}/checkpoints/{step or 0}/export"
        return self._records(path, request, _EXPORT)

    async def trackers(self, run_id: str) -> TrackerList:
        """State of the experiment trackers that are enabled for the run or have received data of
        it."""
        return await self._ask("GET", f"/runs/{run_id}/trackers", TrackerList)

    async def track(self, run_id: str, to: Sequence[TrackerName] = ()) -> TrackerList:
        """Send a run to the experiment trackers `to`, each from where it stopped; empty: to all
        trackers that the project's settings enable."""
        request = TrackRun(to=list(to))
        return await self._ask("POST", f"/runs/{run_id}/track", TrackerList, body=request)

    def ask_arena(self, request: AskArena) -> AsyncGenerator[ArenaTicked, None]:
        """Send one question to several models; yields text as it is generated. The first call loads
        the models; closing the iterator cancels the rest."""
        return self._records("/arena", request, ArenaTicked)

    async def tally(self, project: str) -> Tally:
        return await self._ask("GET", "/arena", Tally, params={"path": project})

    async def open_outside(self, request: OpenOutside) -> OutsideRun:
        """Open a run for an external script; returns when the model is loaded (no timeout)."""
        return await self._ask("POST", "/outside", OutsideRun, body=request, timeout=None)

    async def train_outside(self, run_id: str, request: TrainGroups) -> Trained:
        """Train one step on a script's groups; returns when the step is stored. A repeated call
        with the same `request.key` does not train again."""
        path = f"/runs/{run_id}/outside/train"
        return await self._ask("POST", path, Trained, body=request, timeout=None)

    async def log_outside(self, run_id: str, request: LogOutside) -> None:
        """Store trajectories and metric values that a script logs. A repeated call with the same
        `request.key` stores nothing."""
        body = request.model_dump_json().encode()
        await self._send("POST", f"/runs/{run_id}/outside/log", content=body, timeout=None)

    async def close_outside(self, run_id: str, request: CloseOutside) -> RunSummary:
        """Close a script's run; returns when its last event is stored."""
        return await self._ask("POST", f"/runs/{run_id}/outside/close", RunSummary, body=request)


def _history(line: str) -> History:
    history = History.model_validate_json(line)
    _ = history.events
    return history
