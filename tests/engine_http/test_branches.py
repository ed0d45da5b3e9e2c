"""Branches and replays: a branch shares its parent's steps, a replay repeats them bit for bit."""

import json
import shutil
from pathlib import Path

import pytest

from engine.protocol.events.checkpoints import CheckpointBranched, CheckpointDropped
from engine.protocol.events.run import LogWritten, RunFailed, RunFinished, RunStopped, StepFinished
from engine.protocol.problems import AtelierError
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.runs import Command, PinCheckpoint, StartRun, TrajectoryQuery
from engine.storage.checkpoints.checkpoint import folder_of
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import DATABASE, read_spec
from tests.engine_http.conftest import Engine, make_project, until

STEPS = {"train.steps": 4, "train.checkpoint_every": 1}


def branch(engine: Engine, project: Path, origin: str, **more: object) -> RunSummary:
    request = StartRun(project=str(project), origin=origin, **more)  # type: ignore[arg-type]
    return engine.call(lambda client: client.start_run(request))


def weights(run: RunSummary, step: int) -> bytes:
    file = folder_of(Path(run.path), step) / "adapter" / "adapter_model.safetensors"
    return file.read_bytes()


def steps(run: RunSummary) -> dict[int, StepFinished]:
    reader = RunReader(Path(run.path) / DATABASE)
    try:
        events = reader.events_of("step.finished")
        return {e.step: e for e in events if isinstance(e, StepFinished)}
    finally:
        reader.close()


@pytest.fixture(scope="module")
def trained_run(
    shared_engine: Engine, home: Path, tiny_model: Path
) -> tuple[Engine, Path, RunSummary]:
    """Engine, project and finished run of one step; no further training in it."""
    project = make_project(home / "letters", tiny_model)
    run = shared_engine.train(project, **{"train.steps": 1})
    shared_engine.wait(run)
    return shared_engine, project, run


def test_branch_shares_parent_steps_and_replay_is_identical(engine: Engine, project: Path) -> None:
    parent = engine.train(project, **STEPS)
    assert isinstance(engine.wait(parent)[-1], RunFinished)
    first = engine.call(lambda c: c.siblings(parent.id, "train", 1, 0)).trajectories[0]
    word = Word(kind="note", trajectory_id=first.id, text="said after the run had ended")
    label = Label(id="l1", split="train", step=1, group=0, words=[word], effect="none")
    engine.call(lambda c: c.add_label(parent.id, label))

    child = branch(engine, project, f"{parent.name}@2", overrides={"train.steps": 3})
    assert isinstance(engine.wait(child)[-1], RunFinished)
    spec = read_spec(Path(child.path))
    assert spec.parent is not None
    assert (spec.parent.run_id, spec.parent.step) == (parent.id, 2)
    assert spec.config.train.checkpoint_every == 1, "the parent's settings, not the project's"
    assert weights(child, 2) == weights(parent, 2)
    mine, theirs = steps(child), steps(parent)
    assert list(mine) == [1, 2, 3]
    assert {s: mine[s].metrics for s in (1, 2)} == {s: theirs[s].metrics for s in (1, 2)}
    page = engine.call(lambda c: c.trajectories(child.id, TrajectoryQuery(filter="Say")))
    assert {t.step for t in page.items} == {0, 1, 2, 3}
    assert [one.id for one in engine.call(lambda c: c.siblings(child.id, "train", 1, 0)).labels]
    reader = RunReader(Path(child.path) / DATABASE)
    seqs = [json.loads(line)["seq"] for line in reader.events()]
    assert seqs == list(range(1, len(seqs) + 1))
    (stored_label,) = reader.labels()
    assert [e.seq for e in reader.events_of("group.labelled")] == [stored_label.seq]
    reader.close()
    reader = RunReader(Path(parent.path) / DATABASE)
    branch_events = reader.events_of("checkpoint.branched")
    assert [e.child for e in branch_events if isinstance(e, CheckpointBranched)] == [child.id]
    reader.close()

    replay = branch(engine, project, f"{parent.name}@2", replay=True)
    events = engine.wait(replay)
    assert isinstance(events[-1], RunFinished)
    messages = [e.text for e in events if isinstance(e, LogWritten) and e.source == "replay"]
    assert messages == [
        f"Step {s}: the adapter is identical to that of {parent.name}." for s in (3, 4)
    ]
    assert weights(replay, 4) == weights(parent, 4)


def test_branch_starts_from_external_adapter(
    trained_run: tuple[Engine, Path, RunSummary], engine: Engine, project: Path, tmp_path: Path
) -> None:
    _, _, run = trained_run
    toml = project / "project.toml"
    toml.write_text(toml.read_text().replace("rank = 4", "rank = 8\nalpha = 8"))
    adapter = tmp_path / "elsewhere"
    shutil.copytree(folder_of(Path(run.path), 1) / "adapter", adapter)
    art = tmp_path / ".art" / "letters" / "models" / "agent"
    shutil.copytree(adapter, art / "checkpoints" / "0012")
    (art / "checkpoints" / "0003").mkdir()
    child = branch(engine, project, str(art), overrides={"train.steps": 1})
    assert isinstance(engine.wait(child)[-1], RunFinished)
    spec = read_spec(Path(child.path))
    theirs = read_spec(Path(run.path)).config.model
    assert (spec.config.model.rank, spec.config.model.alpha) == (4, theirs.alpha) != (8, 8)
    assert weights(child, 0) == weights(run, 1)
    assert weights(child, 1) != weights(run, 1)


@pytest.mark.parametrize(
    ("origin", "more", "words"),
    [
        ("{run}@9", {}, "This run has checkpoints of these steps: 1."),
        ("nobody@1", {}, "no trained run called nobody"),
        ("{run}@1", {}, "set a larger train.steps"),
        ("{run}@1", {"overrides": {"train.steps": 3, "model.rank": 2}}, "model.rank cannot change"),
        ("{run}@0", {"replay": True, "overrides": {"train.lr": 1}}, "settings cannot change"),
        ("{run}@1", {"replay": True}, "no finished step after step 1"),
        ("/nowhere", {}, "neither RUN@STEP nor a folder"),
    ],
)
def test_invalid_branch_is_rejected(
    trained_run: tuple[Engine, Path, RunSummary], origin: str, more: dict[str, object], words: str
) -> None:
    engine, project, run = trained_run
    with pytest.raises(AtelierError) as raised:
        branch(engine, project, origin.format(run=run.name), **more)
    assert words in str(raised.value)
    assert len(list(project.glob("runs/*"))) == 1
    assert not list(project.glob(".branch-*"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"use_dora": True}, "biases, DoRA"),
        ({"peft_type": "IA3"}, "IA3"),
        ({"rank_pattern": {"q_proj": 2}}, "mixed rank"),
    ],
)
def test_unsupported_adapter_is_rejected(
    trained_run: tuple[Engine, Path, RunSummary],
    tmp_path: Path,
    change: dict[str, object],
    words: str,
) -> None:
    engine, project, run = trained_run
    adapter = tmp_path / "elsewhere"
    shutil.copytree(folder_of(Path(run.path), 1) / "adapter", adapter)
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(AtelierError, match=words):
        branch(engine, project, str(adapter))


def test_retention_deletes_checkpoints_except_pinned(engine: Engine, project: Path) -> None:
    rules = {"train.keep_last": 1, "train.keep_best": 0, "train.validate_every": 0}
    run = engine.train(project, **{**STEPS, "train.steps": 40, **rules})
    engine.wait_for(run, "checkpoint.saved")
    newest = engine.call(lambda c: c.checkpoints(run.id))[-1].checkpoint.step
    engine.call(lambda c: c.pin_checkpoint(run.id, newest, PinCheckpoint(note="demo")))
    engine.wait_for(run, "checkpoint.dropped")
    engine.call(lambda c: c.command(run.id, Command(action="stop_after_step")))
    events = engine.wait(run)
    stored = {one.checkpoint.step: one for one in engine.call(lambda c: c.checkpoints(run.id))}
    assert stored[newest].kept_by[0] == "pinned"
    assert stored[newest].note == "demo"
    assert len(stored) == 2
    dropped = {e.step for e in events if isinstance(e, CheckpointDropped)}
    assert dropped
    folders = {path.name for path in (Path(run.path) / "checkpoints").iterdir()}
    assert folders == {f"step-{step:06d}" for step in stored}
    with pytest.raises(AtelierError, match="from which the run resumes"):
        engine.call(lambda c: c.delete_checkpoint(run.id, max(stored)))
    engine.call(lambda c: c.delete_checkpoint(run.id, newest))
    assert not folder_of(Path(run.path), newest).exists()


def test_queued_runs_start_in_order_and_can_be_cancelled(engine: Engine, project: Path) -> None:
    first = engine.train(project, **{"train.steps": 1000})
    requests = [
        StartRun(project=str(project), overrides={"train.steps": 1}, queue=True) for _ in range(3)
    ]
    waiting = [engine.call(lambda c, r=r: c.start_run(r)) for r in requests]  # type: ignore[misc]
    assert {run.state for run in waiting} == {"queued"}
    engine.call(lambda c: c.command(waiting[1].id, Command(action="stop_now")))
    engine.call(lambda c: c.command(first.id, Command(action="stop_now")))
    engine.wait_for(waiting[0], "run.started")  # the oldest run starts first
    assert engine.call(lambda c: c.run(waiting[2].id)).state == "queued"
    engine.call(lambda c: c.command(waiting[0].id, Command(action="stop_now")))
    assert isinstance(engine.wait(waiting[0])[-1], RunStopped)
    assert isinstance(engine.wait(waiting[1])[-1], RunStopped)
    assert isinstance(engine.wait(waiting[2])[-1], RunFinished)
    starts = [engine.call(lambda c, r=r: c.run(r.id)) for r in waiting]  # type: ignore[misc]
    assert [run.state for run in starts] == ["stopped", "stopped", "finished"]
    until(lambda: not engine.child_processes("engine.policy.torch"))
    assert not any(isinstance(e, RunFailed) for run in waiting for e in engine.wait(run))
