"""Qt models over folded state and over small lists."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import Qt

from engine.protocol.events import run as e
from engine.protocol.problems import Problem
from engine.protocol.records.curves import ScenarioCurve
from studio.actions.actions import ACTIONS
from studio.models.event_feed import Feed
from studio.models.log import LogListModel
from studio.models.projects import ProjectListModel, project_rows, run_title
from studio.models.run import RunModel
from studio.models.scenarios import BEFORE, ScenarioTableModel, columns_of, read_jsonl
from studio.models.shortcuts import ShortcutTableModel
from studio.store.runs.runs import RunStore
from studio.store.runs.state import LOG_LINES
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.simulated_run import SMALL, Simulation


@pytest.fixture
def followed(qapp: Any) -> tuple[RunStore, Feed, RunModel, Simulation]:
    store = RunStore()
    feed = Feed(store)
    run = RunModel(store, feed)
    simulation = Simulation(train=SMALL)
    simulation.begin()
    run.select(simulation.made.spec.id)
    return store, feed, run, simulation


def test_event_batch_is_folded_and_signalled(followed: Any, qtbot: Any) -> None:
    _, feed, run, simulation = followed
    simulation.step(1)
    with qtbot.waitSignal(run.changed):
        feed.receive_events(run.run_id, simulation.made.events)
    qtbot.waitUntil(lambda: run.state.done == 1)
    xs, ys = run.series("reward/mean")
    assert list(xs) == [1]
    assert len(ys) == 1
    assert len(run.series("nothing")[0]) == 0
    assert run.names("reward/part/") == [
        "reward/part/sources",
        "reward/part/answer",
        "reward/part/turn cost",
    ]


def test_aligned_series_have_nan_for_missing_values(followed: Any) -> None:
    store, _, run, simulation = followed
    simulation.step(1)
    simulation.step(2)
    store.fold(run.run_id, simulation.made.events)
    store.state(run.run_id).series["kl"].rewind(2)
    xs, entropy, kl = run.aligned("entropy", "kl")
    assert list(xs) == [1, 2]
    assert np.isfinite(entropy).all()
    assert np.isfinite(kl[0])
    assert np.isnan(kl[1])


def test_gap_requests_stream_from_last_sequence_number(followed: Any, qtbot: Any) -> None:
    _, feed, run, simulation = followed
    with qtbot.waitSignal(feed.gap_found) as signal:
        feed.receive_events(run.run_id, simulation.made.events[3:])
    assert signal.args == [run.run_id, 0]


def test_log_model_grows_and_drops_old_lines(followed: Any, qtmodeltester: Any) -> None:
    store, _, run, simulation = followed
    log = LogListModel(run)
    for number in range(LOG_LINES + 50):
        text = f"line {number}" if number else "x" * 5000
        simulation.made.say(e.LogWritten(level="info", source="agent", text=text))
        if number % 500 == 0:
            store.fold(run.run_id, simulation.made.events)
            run.tell()
            if number == 0:
                assert len(log.index(1).data()) < 2100
    store.fold(run.run_id, simulation.made.events)
    run.tell()
    assert log.rowCount() == LOG_LINES
    assert log.index(LOG_LINES - 1).data() == f"agent: line {LOG_LINES + 49}"
    qtmodeltester.check(log)


def test_project_rows_and_search(engine: FakeEngine, qapp: Any, qtmodeltester: Any) -> None:
    views = [engine.add_project("inbox-scout"), engine.add_project("tiles")]
    simulation = Simulation(train=SMALL)
    simulation.begin()
    simulation.step(1)
    run = engine.add_run(simulation.made)
    rows = project_rows(views, [run], [views[0].path, "/gone/away"])
    assert [row.name for row in rows] == ["inbox-scout", "tiles", "away"]
    assert rows[0].run == run
    assert rows[2].missing
    before, after = (
        run.model_copy(update={"id": kind, "kind": kind, "started_at": at})
        for kind, at in (("writing", run.started_at - 9), ("baseline", run.started_at + 9))
    )
    assert project_rows(views, [before, after], [])[0].run == after, "the newest without steps"
    assert project_rows(views, [after, run, before], [])[0].run == run, "a training run comes first"
    model = ProjectListModel()
    model.set_rows(rows)
    model.search("TIL")
    assert [row.name for row in model.rows] == ["tiles"]
    assert not model.empty
    model.search("")
    qtmodeltester.check(model)
    assert run_title(run) == "amber-kestrel · Training, step 1 of 6"


def test_shortcuts_are_unique_and_listed(qapp: Any, qtmodeltester: Any) -> None:
    keys = [spec.shortcut for spec in ACTIONS if spec.bound and spec.shortcut]
    assert len(keys) == len(set(keys))
    model = ShortcutTableModel()
    assert model.rowCount() == sum(bool(spec.shortcut) for spec in ACTIONS)
    qtmodeltester.check(model)


def test_read_jsonl_reports_invalid_lines() -> None:
    assert read_jsonl('{"id": "one\u2028two"}\r\n{"id": 2}\n')[0] == [
        {"id": "one\u2028two"},
        {"id": 2},
    ]
    rows, problems = read_jsonl('{"id": 1}\n\nnot json\n[2]\n{"x": "é"}\n', "train.jsonl")
    assert rows == [{"id": 1}, {"x": "é"}]
    assert [problem.where for problem in problems] == ["train.jsonl:3", "train.jsonl:4"]


def curve(
    scenario_id: str,
    title: str,
    *,
    mean: float | None,
    spread: float | None,
    attempts: int = 4,
    unscored: int = 0,
) -> ScenarioCurve:
    return ScenarioCurve(
        scenario_id=scenario_id, title=title, visits=1, attempts=attempts, unscored=unscored,
        mean=mean, early=mean, late=mean, gain=0, lost=0, spread=spread, difficulty=0.5,
        last_step=0, curve=[],
    )  # fmt: skip


def test_baseline_statistics_are_shown_per_scenario(qapp: Any, qtmodeltester: Any) -> None:
    model = ScenarioTableModel()
    texts = ["a  first one", "second", "third", "fourth", "fifth"]
    model.load([{"q": text, "n": place} for place, text in enumerate(texts)])
    model.show_before(
        {
            "1": curve("1", "a first…", mean=0.5, spread=0.5),
            "2": curve("2", "second", mean=0.0, spread=1e-8),
            "3": curve("3", "third", mean=None, spread=None, unscored=4),
            "4": curve("4", "fourth", mean=1.0, spread=0.0, attempts=1),
        }
    )
    qtmodeltester.check(model)

    def shown() -> list[str]:
        return [model.index(row, 2).data() for row in range(model.rowCount())]

    assert model.headerData(2, Qt.Orientation.Horizontal) == BEFORE
    assert shown() == ["0.50", "0.00 · no signal", "unscored", "1.00", "not measured"]
    assert model.silent() == [1]
    assert not model.setData(model.index(0, 2), "0.9")
    assert not model.flags(model.index(0, 2)) & Qt.ItemFlag.ItemIsEditable
    assert model.setData(model.index(1, 0), "second, but easier")
    assert shown()[1] == "not measured"
    assert model.silent() == []
    model.remove([0])
    assert shown() == ["not measured"] * 4, "row numbers have changed"
    model.show_before({})
    assert model.columnCount() == 2


def test_scenario_edits_can_be_undone(qapp: Any, qtmodeltester: Any) -> None:
    model = ScenarioTableModel()
    model.load([{"prompt": "a", "id": "s1", "n": 3}, {"prompt": "b", "id": "s2"}])
    assert model.columns == ["id", "prompt", "n"] == columns_of(model.rows)
    qtmodeltester.check(model)
    rejected: list[Problem] = []
    model.rejected.connect(rejected.append)
    assert model.setData(model.index(0, 2), "4")
    assert model.rows[0]["n"] == 4
    assert not model.setData(model.index(0, 2), "four")
    assert rejected
    assert model.setData(model.index(1, 2), "")
    assert "n" not in model.rows[1]
    model.add()
    model.remove([0])
    model.take_in([{"id": "x", "new": True}])
    assert [row["id"] for row in model.rows] == ["s2", "s3", "x"]
    assert "new" in model.columns
    while model.undo.canUndo():
        model.undo.undo()
    assert model.rows == [{"prompt": "a", "id": "s1", "n": 3}, {"prompt": "b", "id": "s2"}]
    assert model.undo.isClean()


@given(
    st.lists(
        st.dictionaries(
            st.text(max_size=5),
            st.none() | st.integers() | st.text(max_size=8) | st.lists(st.booleans(), max_size=2),
            max_size=4,
        ),
        max_size=6,
    )
)
def test_jsonl_round_trip_of_any_objects(rows: list[dict[str, Any]]) -> None:
    text = "\n".join(json.dumps(row) for row in rows)
    assert read_jsonl(text) == (rows, [])


def test_cells_are_editable(qapp: Any) -> None:
    model = ScenarioTableModel()
    model.load([{"id": "a"}])
    assert model.flags(model.index(0, 0)) & Qt.ItemFlag.ItemIsEditable
