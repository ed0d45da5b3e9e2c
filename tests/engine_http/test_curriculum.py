"""Curriculum over HTTP: a killed, labelled, resumed, branched or replayed run selects the same
scenarios."""

import json
from pathlib import Path

import pytest

from engine.protocol.events.run import GroupScored, LogWritten, RunFinished, StepStarted
from engine.protocol.problems import AtelierError
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.runs import Command, StartRun
from engine.storage.project import load_scenarios
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import DATABASE, read_spec
from engine.training.step.curriculum import Visit, scenario_weights
from engine.training.step.scenario_sampling import Choice, choose
from tests.engine_http.conftest import Engine, make_project, start_engine, stop_engine

FRONTIER = {"train.curriculum": "frontier", "train.steps": 6, "train.checkpoint_every": 2}


def scenarios_by_step(run: RunSummary) -> dict[int, list[str]]:
    """Return the scenarios of each step, as recorded at its start."""
    reader = RunReader(Path(run.path) / DATABASE)
    started = [e for e in reader.events_of("step.started") if isinstance(e, StepStarted)]
    reader.close()
    return {e.step: [group.scenario_id for group in e.groups] for e in started}


def expected_scenarios(run: RunSummary) -> dict[int, list[str]]:
    """Select the scenarios of each step again from the groups complete by step - 1 - staleness."""
    spec = read_spec(Path(run.path))
    train, scenarios = (
        spec.config.train,
        load_scenarios(Path(run.project_path), spec.config, "train"),
    )
    reader = RunReader(Path(run.path) / DATABASE)
    groups = [e.group for e in reader.events_of("group.scored") if isinstance(e, GroupScored)]
    reader.close()
    groups = sorted((g for g in groups if g.split == "train"), key=lambda g: (g.step, g.group))
    selected = {}
    for step in range(1, train.steps + 1):
        visits = [
            Visit(g.step, g.scenario_id, tuple(r for r in g.rewards if r is not None))
            for g in groups
            if g.step < step - train.staleness
        ]
        done = (step - 1) / train.steps
        kind, floor = train.curriculum, train.curriculum_floor
        weights = scenario_weights(kind, scenarios, visits, done, floor)  # type: ignore[arg-type]
        scenario_choice = choose(Choice(scenarios, train.seed, step, weights), train.groups)
        selected[step] = [one.id for one in scenario_choice]
    return selected


@pytest.mark.parametrize("staleness", [0, 1])
def test_killed_and_labelled_run_selects_same_scenarios(
    workspace: Path, tiny_model: Path, staleness: int
) -> None:
    project = make_project(workspace / "letters", tiny_model)
    engine = start_engine(workspace)
    try:
        run = engine.train(project, **FRONTIER, **{"train.staleness": staleness})
        engine.wait_for(run, "step.finished")
        engine.kill()
        engine = start_engine(workspace)
        engine.call(lambda c: c.project(str(project)))
        relabel_group(engine, run)
        engine.call(lambda c: c.command(run.id, Command(action="resume")))
        assert isinstance(engine.wait(run)[-1], RunFinished)
        assert scenarios_by_step(run) == expected_scenarios(run)
        request = StartRun(project=str(project), origin=f"{run.id}@0", replay=True)
        replay = engine.call(lambda c: c.start_run(request))
        events = engine.wait(replay)
    finally:
        stop_engine(engine)
    assert isinstance(events[-1], RunFinished), events[-1]
    messages = [e.text for e in events if isinstance(e, LogWritten) and e.source == "replay"]
    assert messages
    assert all("is identical to that of" in words for words in messages), messages
    assert scenarios_by_step(replay) == scenarios_by_step(run)


def relabel_group(engine: Engine, run: RunSummary) -> None:
    """Swap the scores of a group of step 1 after the step has finished."""
    group = engine.call(lambda c: c.siblings(run.id, "train", 1, 0))
    words = [
        Word(kind="score", trajectory_id=one.id, value=float(place % 2))
        for place, one in enumerate(group.trajectories)
    ]
    label = Label(id="late", split="train", step=1, group=0, words=words)
    engine.call(lambda c: c.add_label(run.id, label))
    after = engine.call(lambda c: c.siblings(run.id, "train", 1, 0)).group
    assert after.rewards != group.group.rewards


def test_branch_continues_curriculum_of_its_parent(engine: Engine, project: Path) -> None:
    parent = engine.train(project, **FRONTIER)
    assert isinstance(engine.wait(parent)[-1], RunFinished)
    child = engine.call(
        lambda c: c.start_run(StartRun(project=str(project), origin=f"{parent.name}@4"))
    )
    assert isinstance(engine.wait(child)[-1], RunFinished)
    assert scenarios_by_step(child)[5] == scenarios_by_step(parent)[5]
    assert scenarios_by_step(child) == expected_scenarios(child)


def test_invalid_difficulty_is_rejected_before_sampling(engine: Engine, project: Path) -> None:
    file = project / "scenarios" / "train.jsonl"
    file.write_text(json.dumps({"id": "s1", "q": "Say 1", "difficulty": "hard"}) + "\n")
    with pytest.raises(AtelierError, match="The difficulty of scenario s1 is not a number"):
        engine.train(project, **{"train.curriculum": "easy_first"})
