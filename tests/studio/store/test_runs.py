"""Summaries follow the streams; a series rewinds; a project says what is wrong with it."""

from engine.protocol.config import ProjectConfig
from engine.protocol.problems import Problem
from engine.protocol.records import ProjectView, RunSummary, SplitInfo
from studio.store.project import ProjectStore
from studio.store.runs import RunStore
from studio.store.series import Series
from tests.studio.simulate import SMALL, Simulation


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


def test_the_stream_moves_the_summary_on() -> None:
    run, store = Simulation(train=SMALL), RunStore()
    run.begin()
    run.step(1)
    store.replace([summary("a")])
    store.fold("a", run.made.events)
    shown = store.summary("a")
    assert shown is not None
    assert shown.step == 1
    assert shown.trajectories == 12
    assert len(shown.rewards) == 1
    assert [r.id for r in store.living()] == ["a"]


def test_a_replay_does_not_move_the_summary_back() -> None:
    run, store = Simulation(train=SMALL), RunStore()
    run.begin()
    run.step(1)
    run.step(2)
    late = run.made.clock + 100
    store.replace([summary("a", step=2, state="finished", changed_at=late)])
    store.fold("a", run.made.events[:10])
    shown = store.summary("a")
    assert shown is not None
    assert shown.state == "finished"
    assert shown.step == 2


def test_new_runs_come_first() -> None:
    store = RunStore()
    store.replace([summary("a")])
    store.put(summary("b", project_path="/q"))
    assert [run.id for run in store.all()] == ["b", "a"]
    assert [run.id for run in store.of("/p")] == ["a"]


def test_series_rewind() -> None:
    series = Series()
    for x in range(1, 6):
        series.append(x, x * 10)
    assert series.at(3) == 30
    assert series.at(9) is None
    series.append(3, 31)
    assert list(series) == [(1, 10), (2, 20), (3, 31)]
    assert series.revision == 1


def test_project_problems_and_command() -> None:
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
    assert store.command() == "python -m engine train '/my projects/p'"
