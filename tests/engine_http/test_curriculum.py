"""A curriculum over real HTTP: killed, labelled, resumed, branched, replayed, it chooses alike."""

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


def plans(run: RunSummary) -> dict[int, list[str]]:
    """The scenarios of each step, as was said when it began."""
    reader = RunReader(Path(run.path) / DATABASE)
    started = [e for e in reader.events_of("step.started") if isinstance(e, StepStarted)]
    reader.close()
    return {e.step: [group.scenario_id for group in e.groups] for e in started}


def expected(run: RunSummary) -> dict[int, list[str]]:
    """The same from scratch: what the groups up to step − 1 − staleness had scored when whole."""
    spec = read_spec(Path(run.path))
    train, scenarios = (
        spec.config.train,
        load_scenarios(Path(run.project_path), spec.config, "train"),
    )
    reader = RunReader(Path(run.path) / DATABASE)
    groups = [e.group for e in reader.events_of("group.scored") if isinstance(e, GroupScored)]
    reader.close()
    groups = sorted((g for g in groups if g.split == "train"), key=lambda g: (g.step, g.group))
    found = {}
    for step in range(1, train.steps + 1):
        seen = [
            Visit(g.step, g.scenario_id, tuple(r for r in g.rewards if r is not None))
            for g in groups
            if g.step < step - train.staleness
        ]
        done = (step - 1) / train.steps
        weights = scenario_weights(train.curriculum, scenarios, seen, done, train.curriculum_floor)  # type: ignore[arg-type]
        chosen = choose(Choice(scenarios, train.seed, step, weights), train.groups)
        found[step] = [one.id for one in chosen]
    return found


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_killed_and_labelled_run_chooses_as_it_would_have(
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
        overrule(engine, run)
        engine.call(lambda c: c.command(run.id, Command(action="resume")))
        assert isinstance(engine.wait(run)[-1], RunFinished)
        assert plans(run) == expected(run)
        request = StartRun(project=str(project), origin=f"{run.id}@0", replay=True)
        replay = engine.call(lambda c: c.start_run(request))
        events = engine.wait(replay)
    finally:
        stop_engine(engine)
    assert isinstance(events[-1], RunFinished), events[-1]
    said = [e.text for e in events if isinstance(e, LogWritten) and e.source == "replay"]
    assert said
    assert all("is identical to that of" in words for words in said), said
    assert plans(replay) == plans(run)


def overrule(engine: Engine, run: RunSummary) -> None:
    """A person turns a group of step 1 around, after the step has seen it."""
    group = engine.call(lambda c: c.siblings(run.id, "train", 1, 0))
    words = [
        Word(kind="score", trajectory_id=one.id, value=float(place % 2))
        for place, one in enumerate(group.trajectories)
    ]
    label = Label(id="late", split="train", step=1, group=0, words=words)
    engine.call(lambda c: c.add_label(run.id, label))
    after = engine.call(lambda c: c.siblings(run.id, "train", 1, 0)).group
    assert after.rewards != group.group.rewards


def test_a_branch_goes_on_with_what_its_parent_practised(engine: Engine, project: Path) -> None:
    parent = engine.train(project, **FRONTIER)
    assert isinstance(engine.wait(parent)[-1], RunFinished)
    child = engine.call(
        lambda c: c.start_run(StartRun(project=str(project), origin=f"{parent.name}@4"))
    )
    assert isinstance(engine.wait(child)[-1], RunFinished)
    assert plans(child)[5] == plans(parent)[5]
    assert plans(child) == expected(child)


def test_a_difficulty_that_is_no_number_is_said_before_anything_is_sampled(
    engine: Engine, project: Path
) -> None:
    file = project / "scenarios" / "train.jsonl"
    file.write_text(json.dumps({"id": "s1", "q": "Say 1", "difficulty": "hard"}) + "\n")
    with pytest.raises(AtelierError, match="The difficulty of scenario s1 is not a number"):
        engine.train(project, **{"train.curriculum": "easy_first"})
