"""Table of runs: filters, order, pages, tags; cache of summaries over the life of an engine."""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any, get_args

import pytest

from engine.cli.options.runs import SORTS
from engine.protocol.events.run import RunQueued
from engine.protocol.records.run_notes import RunNotes
from engine.protocol.records.runs import Interval, RunSummary
from engine.protocol.requests.run_table import RunQuery, RunSort
from engine.server.services import library as library_module
from engine.server.services.library import Library
from engine.server.services.run_table import table as table_module
from engine.server.services.run_table.summary_cache import FILE, SummaryCache
from engine.server.services.run_table.table import SPARKLINE_POINTS, RunTable, page_of
from engine.storage.run_db.writer import RunWriter
from engine.storage.run_folder.notes import write_notes
from engine.storage.run_folder.run import DATABASE, read_spec
from tests.bench.many_runs import make_runs


def summary(number: int, **fields: Any) -> RunSummary:
    known = {
        "id": f"01{number:04}", "name": f"run-{number}", "kind": "train", "project": "p",
        "project_path": "/p", "path": f"/p/runs/01{number:04}", "state": "finished", "step": number,
        "steps": 20, "started_at": float(number), "changed_at": float(number),
    }  # fmt: skip
    return RunSummary.model_validate(known | fields)


def names(runs: list[RunSummary], **query: Any) -> list[str]:
    page = page_of(runs, RunQuery(project="/p", **query))
    assert page.total == len(page.items)
    return [run.name for run in page.items]


def best(mean: float) -> Interval:
    return Interval(mean=mean, low=mean - 0.1, high=mean + 0.1, count=9)


RUNS = [
    summary(1, best=best(0.5), notes=RunNotes(tags=("a",))),
    summary(2, state="failed", settings={"train.lr": 0.001}),
    summary(3, best=best(0.9), notes=RunNotes(tags=("a", "b"), note="Too short")),
    summary(4, best=best(-0.2), kind="sft", notes=RunNotes(pinned=True)),
    summary(5, best=best(0.7), state="running", notes=RunNotes(archived=True)),
]


def test_runs_without_the_sorted_value_come_last_and_pinned_ones_first() -> None:
    assert names(RUNS, sort="best") == ["run-4", "run-3", "run-1", "run-2"]
    assert names(RUNS, sort="best", descending=False) == ["run-4", "run-1", "run-3", "run-2"]
    assert names(RUNS, sort="started") == ["run-4", "run-3", "run-2", "run-1"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"tag": "a"}, ["run-3", "run-1"]),
        ({"state": "failed"}, ["run-2"]),
        ({"state": "active"}, []),
        ({"kind": "sft"}, ["run-4"]),
        ({"archived": True}, ["run-5"]),
        ({"search": "SHORT b"}, ["run-3"]),
        ({"search": "train.lr=0.001"}, ["run-2"]),
        ({"search": "short failed"}, []),
    ],
)
def test_filters_restrict_rows(query: dict[str, Any], found: list[str]) -> None:
    assert names(RUNS, **query) == found


def test_page_counts_all_rows_tags_and_archived_runs() -> None:
    page = page_of(RUNS, RunQuery(project="/p", offset=1, limit=2))
    assert [run.name for run in page.items] == ["run-3", "run-2"]
    assert (page.total, page.archived, page.runs) == (4, 1, 5)
    assert page.tags == {"a": 2, "b": 1}


def test_recent_runs_are_the_newest_and_the_active_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_module, "RECENT", 5)
    project = make_runs(tmp_path / "work" / "many", 12)
    library = Library(project.parent)
    runs = library.runs(project)
    write_notes(Path(runs[0].path), RunNotes(archived=True))
    oldest = Path(runs[-1].path)
    (oldest / DATABASE).unlink()  # shared with other runs

    async def queue() -> None:
        with contextlib.closing(RunWriter(oldest / DATABASE, runs[-1].id)) as writer:
            await writer.say(RunQueued(spec=read_spec(oldest)))

    asyncio.run(queue())
    assert library.runs(project)[-1].state == "queued"
    found = library.recent_runs(project)
    assert [run.id for run in found] == [run.id for run in [*runs[1:6], runs[-1]]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_runs(tmp_path / "work" / "many", 12, steps=3 * SPARKLINE_POINTS)


def test_cached_summaries_are_those_of_the_folders(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = SummaryCache(tmp_path)
    before = Library(project.parent, first).runs(project)
    first.close()

    def never(folder: Path) -> RunSummary:
        raise AssertionError(f"{folder} was read again")

    again = SummaryCache(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(library_module, "summarise", never)
        assert Library(project.parent, again).runs(project) == before
    folder = Path(before[0].path)
    write_notes(folder, RunNotes(note="changed"))
    assert Library(project.parent, again).runs(project)[0].notes.note == "changed"
    again.close()


def test_damaged_cache_is_made_anew(project: Path, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    cache = SummaryCache(tmp_path)
    assert len(Library(project.parent, cache).runs(project)) == 12
    cache.close()


def test_curves_of_a_page_are_thinned(project: Path) -> None:
    async def job() -> None:
        library = Library(project.parent)
        table = RunTable(library, lambda run_id: library.summary(library.find(run_id)))
        page = await table.page(RunQuery(project=str(project)), project)
        rewards = library.summary(Path(page.items[0].path)).rewards
        assert len(rewards) == 3 * SPARKLINE_POINTS
        assert len(page.items[0].rewards) == SPARKLINE_POINTS
        assert page.items[0].rewards[0] == rewards[0]
        assert page.items[0].rewards[-1] == rewards[-1]
        await table.close()

    asyncio.run(job())


def test_long_list_is_answered_from_memory_and_read_again_behind(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_module, "QUICK_S", 0.0)
    monkeypatch.setattr(table_module, "REST", 0)

    async def job() -> None:
        library = Library(project.parent)
        table = RunTable(library, lambda run_id: library.summary(library.find(run_id)))
        query = RunQuery(project=str(project), limit=1000)
        first = await table.page(query, project)
        gone = Path(first.items[-1].path)
        os.rename(gone, gone.parents[2] / gone.name)
        assert (await table.page(query, project)).total == 12
        totals = [(await table.page(query, project)).total for _ in range(500)]
        assert totals[-1] == 11
        noted = first.items[0]
        write_notes(Path(noted.path), RunNotes(pinned=True, note="at once"))
        table.changed(noted.id)
        assert (await table.page(query, project)).items[0].notes.note == "at once"
        table.removed(noted.id, project)
        assert noted.id not in [run.id for run in (await table.page(query, project)).items]
        await table.close()

    asyncio.run(job())


def test_command_line_knows_every_order() -> None:
    assert get_args(RunSort) == SORTS
