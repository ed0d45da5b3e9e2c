"""Routes of the fake engine for the table of runs: pages, notes and comparisons."""

from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request

from engine.evaluation.run_comparison import Candidate, compared, measure_of, scenario_table
from engine.protocol.records.run_notes import RunNotes
from engine.protocol.records.run_table import RunComparison, RunPage, SettingDifference
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.run_table import CompareRuns, RunQuery
from engine.server.services.run_table.table import page_of
from studio.store.runs.state import RunState


class FakeRunTable:
    """Table of the fake engine's runs; `queries` are those asked so far."""

    def __init__(
        self, summaries: dict[str, RunSummary], state_of: Callable[[str], RunState]
    ) -> None:
        self._summaries, self._state_of = summaries, state_of
        self.queries: list[RunQuery] = []

    def routes(self) -> list[tuple[Any, ...]]:
        return [
            ("/run_table", self._page, "POST"),
            ("/run_comparison", self._compare, "POST"),
            ("/runs/{run}/notes", self._note, "PUT"),
        ]

    async def _page(self, request: Request) -> RunPage:
        query = RunQuery.model_validate_json(await request.body())
        self.queries.append(query)
        runs = [run for run in self._summaries.values() if run.project_path == query.project]
        return page_of(runs, query)

    async def _note(self, request: Request) -> RunSummary:
        notes = RunNotes.model_validate_json(await request.body())
        run_id = request.path_params["run"]
        self._summaries[run_id] = self._summaries[run_id].model_copy(update={"notes": notes})
        return self._summaries[run_id]

    async def _compare(self, request: Request) -> RunComparison:
        body = CompareRuns.model_validate_json(await request.body())
        runs = [self._summaries[run_id] for run_id in body.runs]
        candidates = [
            Candidate(run.id, run.name, self._state_of(run.id).validations) for run in runs
        ]
        measure = measure_of(candidates)
        steps = [one.chosen(measure, body.at) for one in candidates]
        scores: list[Mapping[str, float | None]] = [
            next((v.scenarios for v in one.validations if v.step == step), {})
            for one, step in zip(candidates, steps, strict=True)
        ]
        keys = sorted({key for run in runs for key in run.settings})
        rows = {key: [run.settings.get(key) for run in runs] for key in keys}
        different = {key: row for key, row in rows.items() if any(v != row[0] for v in row)}
        return RunComparison(
            measure=measure,
            at=body.at,
            runs=compared(candidates, steps, scores, measure),
            scenarios=scenario_table(scores, {}),
            settings=[SettingDifference(key=key, values=row) for key, row in different.items()],
            equal=90 - len(different),
        )
