"""Validation of runs that a judge scores: win rates against the first validation."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.protocol.events.run import Event, RunFinished, UnknownEvent, ValidationFinished
from engine.protocol.records.judging import PART
from engine.protocol.requests.runs import Command, TrajectoryQuery
from engine.protocol.requests.sweeps import StartSweep
from engine.trust.addresses import confirm_address
from tests.engine.judge.scripted import Script, provider
from tests.engine_http.conftest import Engine, make_project, start_engine, stop_engine
from tests.engine_http.test_judge import JUDGE, UNREWARDED, letters
from tests.engine_http.test_sweeps import follow

pytestmark = pytest.mark.usefixtures("real_cache")

STEPS = {
    "train.steps": 4, "train.validate_every": 2, "train.checkpoint_every": 2, "train.keep_best": 1
}  # fmt: skip


@pytest.fixture
def script() -> Iterator[Script]:
    with provider(Script(grade=letters)) as script:
        yield script


@pytest.fixture
def project(workspace: Path, tiny_model: Path, script: Script) -> Path:
    project = make_project(
        workspace / "judged", tiny_model, UNREWARDED, JUDGE.format(url=script.url)
    )
    (project / "rubric.md").write_text("More letters are better.\n")
    confirm_address("openai", script.url)
    return project


def validations(events: list[Event | UnknownEvent]) -> list[ValidationFinished]:
    return [one for one in events if isinstance(one, ValidationFinished)]


def test_later_validations_are_compared_with_the_first(engine: Engine, project: Path) -> None:
    run = engine.train(project, **STEPS)
    events = engine.wait(run)
    finished = events[-1]
    assert isinstance(finished, RunFinished), finished
    first, second, last = validations(events)
    assert (first.reward, first.unscored, first.against, first.win_rates) == (None, 0, (), {})
    assert second.reward is None
    assert [one.opponent for one in second.against] == [0]
    assert set(second.win_rates) == {2}
    assert set(last.win_rates) == {2, 4}
    for comparison in (*second.against, *last.against):
        assert comparison.unjudged == 0
        assert len(comparison.scores) == second.win_rates[2].count
        assert set(comparison.scores.values()) <= {0.0, 0.5, 1.0}
    assert finished.win_rate == last.win_rates[4]
    summary = engine.call(lambda client: client.run(run.id))
    assert (summary.judged, summary.win_rate) == (True, last.win_rates[4])
    query = TrajectoryQuery(split="validation")
    for one in engine.call(lambda client: client.trajectories(run.id, query)).items:
        assert one.reward == one.parts[PART], "the baseline's are scored with the second validation"
    baseline = engine.call(lambda client: client.siblings(run.id, "validation", 0, 0))
    assert baseline.group.rewards == [one.reward for one in baseline.trajectories]
    assert None not in baseline.group.rewards
    kept = engine.call(lambda client: client.checkpoints(run.id))
    best = max(last.win_rates, key=lambda step: last.win_rates[step].mean)
    assert [one.checkpoint.step for one in kept if "best" in one.kept_by] == [best]
    assert {one.checkpoint.step: one.win_rate for one in kept}[best] == last.win_rates[best]


def test_criteria_of_the_rubric_have_scores_of_their_own(
    engine: Engine, project: Path, script: Script
) -> None:
    script.criteria = ("Length", "Clarity")
    criteria = "criteria:\n- {name: Length, weight: 3}\n- {name: Clarity, weight: 1}"
    (project / "rubric.md").write_text(f"---\n{criteria}\n---\nMore letters are better.\n")
    found = validations(engine.wait(engine.train(project, **STEPS)))
    assert [one.step for one in found] == [0, 2, 4]
    for one in found:
        assert one.reward is not None
        assert set(one.criteria) == set(script.criteria)
        for score in one.criteria.values():
            assert score.mean == pytest.approx(one.reward.mean)
            assert score.count == one.reward.count


def test_sweep_compares_win_rates_against_the_untrained_policy(
    engine: Engine, project: Path
) -> None:
    parameters = {"train.lr": [1e-3, 5e-2]}
    request = StartSweep(
        project=str(project),
        overrides={
            **STEPS,
            "sweep.parameters": parameters,
            "sweep.method": "grid",
            "sweep.reduction_factor": 2,
        },
    )
    view = follow(engine, engine.call(lambda client: client.start_sweep(request)))
    assert view.metric == "validation/win_rate"
    assert view.prune_at == (2,)
    assert view.best is not None
    for trial in view.trials:
        run = engine.call(lambda client, trial=trial: client.run(trial.runs[0].run_id))  # type: ignore[misc]
        point = trial.runs[0].curve[-1]
        assert trial.result == point.best
        assert 0 <= point.best.mean <= 1
        assert point.step == (4 if trial.state == "finished" else 2)
        if point.best_step == point.step:
            assert run.win_rate == point.best


def test_killed_validation_ends_with_the_same_comparison(
    workspace: Path, project: Path, script: Script
) -> None:
    engine = start_engine(workspace)
    whole = engine.train(project, **STEPS)
    expected = validations(engine.wait(whole))
    asked = len(script.asked)
    run = engine.train(project, **STEPS)
    engine.wait_for(run, "validation.finished")
    judged = engine.wait_for(run, "step.finished")
    assert judged
    while len(script.asked) < 2 * asked - 3:  # in the last validation
        time.sleep(0.01)
    engine.kill()
    engine = start_engine(workspace)
    try:
        engine.call(lambda client: client.command(run.id, Command(action="resume")))
        events = engine.wait(run)
        assert isinstance(events[-1], RunFinished)
        found = validations(events)
        assert [one.against for one in found] == [one.against for one in expected]
        assert [one.win_rates for one in found] == [one.win_rates for one in expected]
    finally:
        stop_engine(engine)
