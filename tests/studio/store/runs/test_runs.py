"""Run store, series and project store."""

import shlex

import pytest

from engine.protocol.config.project import ProjectConfig
from engine.protocol.events import run as e
from engine.protocol.problems import Problem
from engine.protocol.records.runs import ProjectView, RunSummary, SplitInfo
from studio.store.projects.project import ProjectStore
from studio.store.runs.runs import RunStore
from studio.store.runs.series import Series
from tests.studio.fakes.golden import GOLDEN
from tests.studio.fakes.simulated_run import SMALL, Simulation


def summary(run_id: str, **changes: object) -> RunSummary:
    base = RunSummary(
        id=run_id,
        name="amber-kestrel",
        kind="train",
        project="p",
        project_path="/p",
        path="/p/runs/x",
        state="running",
        step=0,
        steps=6,
        started_at=1.0,
        changed_at=1.0,
    )
    return base.model_copy(update=changes)


def test_folded_events_update_summary() -> None:
    run, store = Simulation(train=SMALL), RunStore()
    run.begin()
    run.step(1)
    store.replace([summary("a")])
    store.fold("a", run.made.events)
    stored_summary = store.summary("a")
    assert stored_summary is not None
    assert stored_summary.step == 1
    assert stored_summary.trajectories == 12
    assert len(stored_summary.rewards) == 1
    assert [r.id for r in store.active()] == ["a"]


def test_replay_does_not_revert_newer_summary() -> None:
    run, store = Simulation(train=SMALL), RunStore()
    run.begin()
    run.step(1)
    run.step(2)
    late = run.made.clock + 100
    seq = run.made.events[-1].seq
    store.replace([summary("a", step=2, state="finished", changed_at=late, seq=seq)])
    store.fold("a", run.made.events[:10])
    stored_summary = store.summary("a")
    assert stored_summary is not None
    assert stored_summary.state == "finished"
    assert stored_summary.step == 2


def test_new_run_is_listed_first() -> None:
    store = RunStore()
    store.replace([summary("a")])
    store.put(summary("b", project_path="/q"))
    assert [run.id for run in store.all()] == ["b", "a"]
    assert [run.id for run in store.of("/p")] == ["a"]


def test_series_is_rewound_by_older_point() -> None:
    series = Series()
    for x in range(1, 6):
        series.append(x, x * 10)
    assert series.at(3) == 30
    assert series.at(9) is None
    series.append(3, 31)
    assert list(series) == [(1, 10), (2, 20), (3, 31)]
    assert series.revision == 1


def test_project_problems_and_train_command() -> None:
    store = ProjectStore()
    assert not store.trainable
    assert store.command() == ""
    bad = Problem(code="scenarios.json", message="Line 3 is no JSON.", where="train.jsonl:3")
    view = ProjectView(
        path="/my projects/p",
        name="p",
        config=ProjectConfig(),
        splits=[SplitInfo(split="train", path="t", problems=[bad])],
    )
    store.open(view)
    assert store.problems == [bad]
    assert not store.trainable
    assert store.command() == "atelier train '/my projects/p'"
    store.open(view.model_copy(update={"path": "/it's (mine)"}))
    assert shlex.split(store.command())[2] == "/it's (mine)"


def test_listed_state_overrides_replayed_events() -> None:
    """A run whose engine was killed has no final event; its stream ends while training."""
    run, store = Simulation(train=SMALL), RunStore()
    run.begin()
    run.step(1)
    events, last = run.made.events, run.made.events[-1]
    store.fold("a", events[:4])
    store.replace([summary("a", step=1, state="stopped", changed_at=last.at, seq=last.seq)])
    for replayed in (events[4:9], events[9:]):
        state = store.fold("a", replayed)
        stored_summary = store.summary("a")
        assert stored_summary is not None
        assert (stored_summary.state, state.status, state.active, state.phase) == (
            "stopped",
            "stopped",
            False,
            None,
        )
    assert not store.active()
    run.made.say(e.RunStarted(spec=run.made.spec, resumed_from=1))
    store.fold("a", run.made.events[-1:])
    stored_summary = store.summary("a")
    assert stored_summary is not None
    assert stored_summary.state == "running", "events newer than the list override it"


@pytest.mark.parametrize("log", sorted(path.name for path in GOLDEN.glob("*.jsonl")))
@pytest.mark.parametrize("engine_says", ["stopped", "failed", "finished", "damaged", "queued"])
def test_replay_of_golden_log_keeps_listed_state(log: str, engine_says: str) -> None:
    events = [e.decode(line) for line in (GOLDEN / log).read_text().splitlines()]
    last = events[-1]
    row = summary("a", state=engine_says, seq=last.seq, changed_at=last.at)
    before, after = RunStore(), RunStore()
    before.replace([row])
    for event in events:
        before.fold("a", [event])
        assert before.state("a").status == engine_says
    after.fold("a", events)
    after.replace([row])
    for store in (before, after):
        stored_summary = store.summary("a")
        assert stored_summary is not None
        assert stored_summary.state == engine_says
        assert store.state("a").status == engine_says
