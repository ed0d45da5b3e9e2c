"""Routes of runs: start, commands, stored data, labels."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import apsw
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from engine.evaluation.stored import read_result
from engine.integrations.inspect.logs import log_content, log_names
from engine.judge.calibration.annotators import annotators
from engine.judge.calibration.measurement import Place, agreements, disagreements
from engine.judge.calibration.rescoring import Rescoring, places_for
from engine.judge.calibration.review_candidates import review_queue
from engine.protocol.problems import AtelierError, StoreError, in_one_line
from engine.protocol.records.curves import CurveQuery
from engine.protocol.records.demonstrations import SelectDemonstrations
from engine.protocol.records.labels import Label
from engine.protocol.records.runs import ACTIVE_STATES, RunSummary
from engine.protocol.requests.exports import ExportCheckpoint
from engine.protocol.requests.review import ReviewQuery
from engine.protocol.requests.runs import (
    Command,
    ExportTrajectories,
    StartEvaluation,
    StartRun,
    TrajectoryLine,
    TrajectoryQuery,
    TryJudge,
)
from engine.server.bodies import Routes, body_of, json_lines, json_list, json_of, number_of, path_of
from engine.server.composition import Services
from engine.server.event_stream import follow
from engine.server.services.repair import remove, repair
from engine.server.services.runs.open_runs import OpenRun
from engine.server.services.summaries import problem_of
from engine.storage.run_db.history import HistoryReader
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import DATABASE, LOG, read_spec, run_reader
from engine.training.sft.selection import demonstrate
from engine.trust.files import open_regular

R = TypeVar("R")
LOG_TAIL_BYTES = 200_000
EXPORTED_AT_ONCE = 20
"""Trajectories of an export that are in memory together."""


class RunRoutes:
    def __init__(self, services: Services) -> None:
        self.library, self.broadcast = services.library, services.broadcast
        self.touch, self._table = services.touch, services.run_table
        self._lifecycle, self._control = services.lifecycle, services.control
        self._judges, self._exports = services.judges, services.exports

    def routes(self) -> Routes:
        return [
            ("GET", "/runs", self.runs),
            ("POST", "/runs", self.start_run),
            ("POST", "/evaluations", self.start_evaluation),
            ("POST", "/runs/{run}/demonstrations", self.demonstrate),
            ("GET", "/runs/{run}", self.run),
            ("POST", "/runs/{run}/command", self.command),
            ("POST", "/runs/{run}/repair", self.repair),
            ("DELETE", "/runs/{run}", self.remove),
            ("GET", "/runs/{run}/events", self.events),
            ("GET", "/runs/{run}/log", self.log),
            ("GET", "/runs/{run}/evaluation", self.evaluation),
            ("GET", "/runs/{run}/inspect", self.inspect_logs),
            ("GET", "/runs/{run}/inspect/{number:int}", self.inspect_log),
            ("POST", "/runs/{run}/trajectories", self.trajectories),
            ("GET", "/runs/{run}/trajectories/{trajectory}", self.trajectory),
            ("POST", "/runs/{run}/exported_trajectories", self.export_trajectories),
            ("GET", "/runs/{run}/filter_names", self.filter_names),
            ("POST", "/runs/{run}/groups", self.groups),
            ("POST", "/runs/{run}/scenarios", self.curves),
            ("GET", "/runs/{run}/groups/{split}/{step:int}/{group:int}", self.siblings),
            ("GET", "/runs/{run}/calls/{key}", self.call),
            ("GET", "/runs/{run}/agreement", self.agreement),
            ("GET", "/runs/{run}/annotators", self.annotators),
            ("GET", "/runs/{run}/disagreements", self.disagreements),
            ("POST", "/runs/{run}/review_queue", self.review_queue),
            ("POST", "/runs/{run}/judge", self.judge),
            ("POST", "/runs/{run}/judge/price", self.price),
            ("POST", "/runs/{run}/judge/suggest", self.suggest),
            ("POST", "/runs/{run}/checkpoints/{step:int}/export", self.export),
            ("GET", "/runs/{run}/labels", self.labels),
            ("POST", "/runs/{run}/labels", self.add_label),
            ("POST", "/runs/{run}/labels/preview", self.preview_label),
            ("POST", "/runs/{run}/labels/undo", self.undo_label),
            ("POST", "/runs/{run}/labels/redo", self.redo_label),
        ]

    async def runs(self, request: Request) -> Response:
        """Respond with the runs of the project in query parameter `project`, or of all; with
        `recent`, only with the newest and the active ones of each project."""
        project = request.query_params.get("project")
        only_recent = "recent" in request.query_params

        def listed() -> list[RunSummary]:
            if not project:
                return self.library.all_runs(only_recent)
            path = path_of(project)
            return self.library.recent_runs(path) if only_recent else self.library.runs(path)

        runs = await asyncio.to_thread(listed)
        return json_list([self._current(r.id) if r.state in ACTIVE_STATES else r for r in runs])

    async def start_run(self, request: Request) -> Response:
        run = await self._control.start(await body_of(request, StartRun))
        self._table.reread(Path(run.project_path))
        return json_of(run)

    async def demonstrate(self, request: Request) -> Response:
        body = await body_of(request, SelectDemonstrations)
        folder = self.library.folder(request.path_params["run"])
        return json_of(await asyncio.to_thread(demonstrate, folder, body))

    async def start_evaluation(self, request: Request) -> Response:
        body = await body_of(request, StartEvaluation)
        return json_of(await self._control.start_evaluation(body))

    async def evaluation(self, request: Request) -> Response:
        folder = self.library.folder(request.path_params["run"])
        spec = await asyncio.to_thread(read_spec, folder)
        result = await self._read(request, lambda reader: read_result(reader, spec, folder))
        return json_of(result)

    async def inspect_logs(self, request: Request) -> Response:
        """Respond with InspectLogs: the names of an evaluation's logs for Inspect."""
        folder = self.library.folder(request.path_params["run"])
        spec = await asyncio.to_thread(read_spec, folder)
        return json_of(await self._read(request, lambda reader: log_names(reader, spec, folder)))

    async def inspect_log(self, request: Request) -> Response:
        """Respond with the log of Inspect with the place `number` in InspectLogs."""
        folder = self.library.folder(request.path_params["run"])
        number = int(request.path_params["number"])
        spec = await asyncio.to_thread(read_spec, folder)
        content = await self._read(
            request, lambda reader: log_content(reader, spec, folder, number)
        )
        return Response(content, media_type="application/zip")

    async def run(self, request: Request) -> Response:
        return json_of(self._current(request.path_params["run"]))

    async def command(self, request: Request) -> Response:
        command = await body_of(request, Command)
        return json_of(await self._control.command(request.path_params["run"], command))

    async def repair(self, request: Request) -> Response:
        run_id = request.path_params["run"]
        async with self._lifecycle.resting(run_id) as folder:
            repaired = await asyncio.to_thread(repair, folder)
        sys.stderr.write(f"{run_id}: {repaired.words}\n")
        self.broadcast.announce(run_id, None)
        return json_of(self._current(run_id))

    async def remove(self, request: Request) -> Response:
        run_id = request.path_params["run"]
        async with self._lifecycle.resting(run_id) as folder:
            await asyncio.to_thread(remove, folder)
        self.library.forget(run_id)
        self._table.removed(run_id, folder.parents[1])
        return Response(status_code=204)

    async def events(self, request: Request) -> Response:
        run_id = request.path_params["run"]
        after = int(number_of(request, "after"))
        reader = HistoryReader(self.library.folder(run_id) / DATABASE)
        brief = "brief" in request.query_params

        async def lines():  # type: ignore[no-untyped-def]
            try:
                async for line in follow(
                    self.broadcast, run_id, reader.brief if brief else reader.all, after
                ):
                    self.touch()
                    yield line
            except StoreError as error:  # the answer has begun: its last line says it
                yield f": {in_one_line(error)}\n\n"
            finally:
                reader.close()

        return StreamingResponse(lines(), media_type="text/event-stream")

    async def log(self, request: Request) -> Response:
        file = self.library.folder(request.path_params["run"]) / LOG
        return PlainTextResponse(await asyncio.to_thread(_tail, file))

    async def trajectories(self, request: Request) -> Response:
        query = await body_of(request, TrajectoryQuery)
        return json_of(await self._read(request, lambda reader: reader.trajectories(query)))

    async def trajectory(self, request: Request) -> Response:
        name = request.path_params["trajectory"]
        return json_of(await self._read(request, lambda reader: reader.trajectory(name)))

    async def export_trajectories(self, request: Request) -> Response:
        """Stream whole trajectories (body: `ExportTrajectories`), one JSON object a line. Hanging
        up cancels the rest."""
        body = await body_of(request, ExportTrajectories)
        run_id = request.path_params["run"]
        ids = await self._read(request, lambda reader: reader.exported_ids(body))

        async def lines() -> AsyncGenerator[BaseModel, None]:
            for start in range(0, len(ids), EXPORTED_AT_ONCE):
                some = ids[start : start + EXPORTED_AT_ONCE]

                def read(reader: RunReader, some: list[str] = some) -> list[TrajectoryLine]:
                    return [reader.exported(run_id, one, body.tokens) for one in some]

                for line in await self._read(request, read):
                    yield line

        return json_lines(lines(), self.touch)

    async def filter_names(self, request: Request) -> Response:
        """Respond with names that occur in the run (reward parts, tools, scenarios …), for the
        completion of filters."""
        return json_of(await self._read(request, lambda reader: reader.filter_names()))

    async def groups(self, request: Request) -> Response:
        query = await body_of(request, TrajectoryQuery)
        return json_of(await self._read(request, lambda reader: reader.groups(query)))

    async def curves(self, request: Request) -> Response:
        query = await body_of(request, CurveQuery)
        return json_of(await self._read(request, lambda reader: reader.curves(query)))

    async def siblings(self, request: Request) -> Response:
        p = request.path_params
        return json_of(
            await self._read(
                request, lambda reader: reader.siblings(p["split"], p["step"], p["group"])
            )
        )

    # The judge's evidence and the person's word

    async def call(self, request: Request) -> Response:
        key = request.path_params["key"]
        return json_of(await self._read(request, lambda reader: reader.any_call(key)))

    async def agreement(self, request: Request) -> Response:
        return json_list(await self._read(request, agreements))

    async def annotators(self, request: Request) -> Response:
        return json_of(await self._read(request, annotators))

    async def disagreements(self, request: Request) -> Response:
        judge, rubric = (request.query_params.get(name, "") for name in ("judge", "rubric"))
        found = await self._read(request, lambda reader: disagreements(reader, judge, rubric))
        return json_list(found)

    async def review_queue(self, request: Request) -> Response:
        query = await body_of(request, ReviewQuery)
        folder = self.library.folder(request.path_params["run"])
        spec = await asyncio.to_thread(read_spec, folder)
        weights = spec.config.reward.weights
        found = await self._read(request, lambda reader: review_queue(reader, query, weights))
        return json_of(found)

    async def price(self, request: Request) -> Response:
        body = await body_of(request, TryJudge)
        async with self._trial(request, body) as (trial, places):
            return json_of(await trial.price(places))

    async def judge(self, request: Request) -> Response:
        """Score groups of a run with a judge on trial (body: `TryJudge`); streams one JSON line per
        result. Hanging up cancels the rest."""
        body = await body_of(request, TryJudge)

        async def judged() -> AsyncGenerator[BaseModel, None]:
            async with self._trial(request, body) as (trial, places):
                async with contextlib.aclosing(trial.judge(places)) as found:
                    async for tried in found:
                        yield tried

        return json_lines(judged(), self.touch)

    async def suggest(self, request: Request) -> Response:
        body = await body_of(request, TryJudge)
        async with self._trial(request, body) as (trial, _):
            return json_of(await trial.suggest())

    @contextlib.asynccontextmanager
    async def _trial(
        self, request: Request, body: TryJudge
    ) -> AsyncIterator[tuple[Rescoring, list[Place]]]:
        async with self._lifecycle.opened(request.path_params["run"]) as opened:
            places = await asyncio.to_thread(places_for, opened.run.reader, body)
            async with self._judges.trial(opened.run, body) as trial:
                yield trial, places

    async def export(self, request: Request) -> Response:
        """Export the checkpoint of a step (0: the newest complete one); stream JSON lines:
        progress, then a report or problem. Hanging up cancels and removes partial files."""
        body = await body_of(request, ExportCheckpoint)
        p = request.path_params
        folder = self.library.folder(p["run"])
        values = self._exports.progress(p["run"], folder, p["step"] or None, body)
        return json_lines(values, self.touch)

    async def labels(self, request: Request) -> Response:
        return json_list(await self._read(request, lambda reader: reader.labels()))

    async def preview_label(self, request: Request) -> Response:
        label = await body_of(request, Label)
        async with self._labelling(request) as opened:
            return json_of(opened.labels.preview(label))

    async def add_label(self, request: Request) -> Response:
        label = await body_of(request, Label)
        async with self._labelling(request) as opened:
            return json_of(await opened.labels.add(label))

    async def undo_label(self, request: Request) -> Response:
        async with self._labelling(request) as opened:
            return json_of(await opened.labels.undo())

    async def redo_label(self, request: Request) -> Response:
        async with self._labelling(request) as opened:
            return json_of(await opened.labels.redo())

    @contextlib.asynccontextmanager
    async def _labelling(self, request: Request) -> AsyncIterator[OpenRun]:
        """Open a run for labels. Raises StoreError if its stored data is invalid."""
        async with self._lifecycle.opened(request.path_params["run"]) as opened:
            with _refusing_what_is_stored(opened.run.folder):
                yield opened

    async def _read(self, request: Request, read: Callable[[RunReader], R]) -> R:
        folder = self.library.folder(request.path_params["run"])

        def work() -> R:
            with run_reader(folder) as reader:
                with _refusing_what_is_stored(folder):
                    return read(reader)

        return await asyncio.to_thread(work)

    def _current(self, run_id: str) -> RunSummary:
        return self._lifecycle.summary(run_id)


@contextlib.contextmanager
def _refusing_what_is_stored(folder: Path) -> Iterator[None]:
    """Convert errors caused by stored rows of a run into StoreError: the rows may be from another
    machine."""
    try:
        yield
    except (AtelierError, OSError, apsw.Error):
        raise
    except Exception as error:
        raise StoreError(problem_of(error, folder)) from error


def _tail(file: Path) -> str:
    if not file.exists():
        return ""
    with open_regular(file) as source:
        source.seek(max(0, file.stat().st_size - LOG_TAIL_BYTES))
        return source.read(LOG_TAIL_BYTES).decode(errors="replace")
