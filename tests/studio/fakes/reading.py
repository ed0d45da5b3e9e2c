"""Routes of stored run data for the fake engine: groups, trajectories, labels, log."""

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from engine.protocol.problems import Refused
from engine.protocol.records.curves import CurveQuery
from engine.protocol.records.labels import Label
from engine.protocol.records.runs import Trajectory, TrajectorySummary
from engine.protocol.requests.filters import parse_filter
from engine.protocol.requests.review import ReviewQuery
from engine.protocol.requests.runs import (
    ExportTrajectories,
    FilterNames,
    TrajectoryLine,
    TrajectoryQuery,
    TrajectoryRow,
)
from engine.storage.run_db.facts import facts_of
from engine.storage.run_db.reader import RunReader
from engine.storage.run_db.schema import open_writer
from engine.storage.run_db.writer import trajectory_rows
from tests.studio.fakes.judge import call_of, verdicts_of
from tests.studio.fakes.labels import FakeLabels, call_label_route
from tests.studio.fakes.pictured import with_images
from tests.studio.fakes.projects import refusal
from tests.studio.fakes.reasoned import with_closed_reasoning
from tests.studio.fakes.review import queue_of
from tests.studio.fakes.rows import matching
from tests.studio.fakes.side_call import with_side_call
from tests.studio.fakes.simulated_run import Made, whole


class FakeReading:
    """Read routes; `runs` and `labels` are those of the fake engine."""

    def __init__(self, runs: dict[str, Made], labels: dict[str, FakeLabels]) -> None:
        self.runs, self.labels = runs, labels
        self.asked: list[TrajectoryQuery] = []
        self.curves_asked: list[CurveQuery] = []
        self.previews = 0
        self.reasons = False
        """Whether trajectories have reasoning, closed by a thinking budget."""
        self.images: dict[str, bytes] = {}
        """Images of all trajectories, as `made_images` gives them; empty for none."""
        self.images_asked: list[str] = []
        self.side_calls = False
        """Whether every trajectory has a second, ignored conversation."""

    def routes(self) -> list[tuple[str, Callable[..., Any], str]]:
        return [
            ("/runs/{run}/trajectories", self._trajectories, "POST"),
            ("/runs/{run}/trajectories/{id}", self._trajectory, "GET"),
            ("/runs/{run}/exported_trajectories", self._export, "POST"),
            ("/runs/{run}/filter_names", self._names, "GET"),
            ("/runs/{run}/groups", self._groups, "POST"),
            ("/runs/{run}/scenarios", self._curves, "POST"),
            ("/runs/{run}/groups/{split}/{step:int}/{group:int}", self._siblings, "GET"),
            ("/runs/{run}/review_queue", self._review_queue, "POST"),
            ("/runs/{run}/labels", self._labels, "GET"),
            ("/runs/{run}/labels", self._labels, "POST"),
            ("/runs/{run}/labels/{verb}", self._labels, "POST"),
            ("/runs/{run}/calls/{key}", self._call, "GET"),
            ("/runs/{run}/images/{image}", self._image, "GET"),
            ("/runs/{run}/log", self._log, "GET"),
        ]

    async def _trajectories(self, request: Request) -> Response:
        query = TrajectoryQuery.model_validate(await request.json())
        self.asked.append(query)
        made = self.runs[request.path_params["run"]]
        try:
            rows = matching(made, query)
        except Refused as refused:
            return JSONResponse(refused.problem.model_dump(), 409)
        page = rows[query.offset : query.offset + query.limit]
        items = [_table_row(made, row).model_dump(mode="json") for row in page]
        return JSONResponse({"total": len(rows), "items": items})

    async def _names(self, request: Request) -> Response:
        rows = self.runs[request.path_params["run"]].trajectories
        tools = {name for row in rows[:50] for name in facts_of(whole(row)).tools}
        names = FilterNames(
            parts=sorted({name for row in rows for name in row.parts}),
            tools=sorted(tools),
            scenarios=sorted({row.scenario_id for row in rows}),
        )
        return JSONResponse(names.model_dump(mode="json"))

    async def _export(self, request: Request) -> Response:
        body = ExportTrajectories.model_validate(await request.json())
        rows = matching(self.runs[request.path_params["run"]], body)
        chosen = [row for row in rows if not body.ids or row.id in body.ids]
        lines = [TrajectoryLine(**whole(row).model_dump()).model_dump_json() for row in chosen]
        return PlainTextResponse("".join(f"{line}\n" for line in lines))

    async def _curves(self, request: Request) -> Response:
        """Answer like the engine: from a run.db with the rows of the simulated run."""
        query = CurveQuery.model_validate(await request.json())
        self.curves_asked.append(query)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "run.db"
            with contextlib.closing(open_writer(file)) as db, db:
                for row in self.runs[request.path_params["run"]].trajectories:
                    for sql, values in trajectory_rows(Trajectory(**row.model_dump()), row):
                        db.execute(sql, values)  # type: ignore[arg-type]
            reader = RunReader(file)
            page = reader.curves(query)
            reader.close()
        return JSONResponse(page.model_dump(mode="json"))

    async def _trajectory(self, request: Request) -> Any:
        rows = self.runs[request.path_params["run"]].trajectories
        row = next((r for r in rows if r.id == request.path_params["id"]), None)
        return (
            self._whole(row) if row else refusal(404, "trajectory.missing", "No such trajectory.")
        )

    def _whole(self, row: TrajectorySummary) -> Trajectory:
        record = with_closed_reasoning(whole(row)) if self.reasons else whole(row)
        record = with_side_call(record) if self.side_calls else record
        return with_images(record, list(self.images)) if self.images else record

    async def _image(self, request: Request) -> Response:
        image = request.path_params["image"]
        self.images_asked.append(image)
        if image not in self.images:
            return refusal(404, "image.unknown", f"The run has no image {image[:12]!a}.")
        return Response(self.images[image], media_type="image/png")

    async def _groups(self, request: Request) -> Response:
        query = TrajectoryQuery.model_validate(await request.json())
        made = self.runs[request.path_params["run"]]
        try:
            parse_filter(query.filter)
        except Refused as refused:
            return JSONResponse(refused.problem.model_dump(), 409)
        keys = {(r.split, r.step, r.group) for r in matching(made, query)}
        rows = [g for g in reversed(made.groups) if (g.split, g.step, g.group) in keys]
        page = rows[query.offset : query.offset + query.limit]
        items = [row.model_dump(mode="json") for row in page]
        return JSONResponse({"total": len(rows), "items": items})

    async def _review_queue(self, request: Request) -> Response:
        query = ReviewQuery.model_validate(await request.json())
        made = self.runs[request.path_params["run"]]
        queue = queue_of(made, self.labels[made.spec.id].labels(), query)
        return JSONResponse(queue.model_dump(mode="json"))

    async def _siblings(self, request: Request) -> Response:
        made, place = self.runs[request.path_params["run"]], request.path_params
        key = (place["split"], place["step"], place["group"])
        group = next(g for g in made.groups if (g.split, g.step, g.group) == key)
        rows = [r for r in made.trajectories if (r.split, r.step, r.group) == key]
        rows.sort(key=lambda row: row.index)
        siblings = [self._whole(row).model_dump(mode="json") for row in rows]
        verdicts = [v for row in rows for v in verdicts_of(made.spec, row, len(rows))]
        labels = self.labels[made.spec.id].labels(*key)
        return JSONResponse(
            {
                "group": group.model_dump(mode="json"),
                "trajectories": siblings,
                "verdicts": [verdict.model_dump(mode="json") for verdict in verdicts],
                "labels": [label.model_dump(mode="json") for label in labels],
            }
        )

    async def _call(self, request: Request) -> Any:
        made = self.runs[request.path_params["run"]]
        return call_of(made.spec, request.path_params["key"])

    async def _labels(self, request: Request) -> Any:
        labels = self.labels[request.path_params["run"]]
        if request.method == "GET":
            return labels.labels()
        verb = request.path_params.get("verb", "add")
        self.previews += verb == "preview"
        body = await request.body()
        label = Label.model_validate_json(body) if verb in ("add", "preview") else None
        try:
            result = call_label_route(labels, verb, label)
            return result if verb == "preview" else await result
        except Refused as refused:
            return JSONResponse(refused.problem.model_dump(), 409)

    async def _log(self, request: Request) -> Response:
        return PlainTextResponse("engine: ready\npolicy: 134.5 M parameters, 4.9 M trained\n")


def _table_row(made: Made, row: TrajectorySummary) -> TrajectoryRow:
    verdicts = verdicts_of(made.spec, row, 8)
    reason = verdicts[-1].reason if verdicts else ""
    return TrajectoryRow(**row.model_dump(), facts=facts_of(whole(row)), reason=reason)
