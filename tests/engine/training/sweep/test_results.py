"""Results of runs and trials: best validation, intervals over seeds, pruning of whole trials."""

import random
from typing import Any

import pytest

from engine.protocol.config.project import ProjectConfig
from engine.protocol.events.run import ValidationFinished
from engine.protocol.problems import Problem
from engine.protocol.records.runs import Interval
from engine.protocol.records.sweeps import SweepPoint, SweepRecord, SweepRun, SweepTrial
from engine.protocol.requests.sweeps import ActOnSweep
from engine.training.sweep import changes
from engine.training.sweep.results import (
    best_trial,
    combined,
    curve_of,
    failures_in_a_row,
    may_continue,
    next_run,
    outcome_of,
    saved_steps,
    student_95,
)


def interval(mean: float, half: float = 0.1, count: int = 20) -> Interval:
    return Interval(mean=mean, low=mean - half, high=mean + half, count=count)


def validation(step: int, mean: float | None, rates: dict[int, float] | None = None) -> Any:
    return ValidationFinished(
        step=step,
        reward=None if mean is None else interval(mean),
        scenarios={},
        unscored=0,
        seconds=1,
        win_rates={at: interval(rate) for at, rate in (rates or {}).items()},
    )


def run(seed: int, state: str = "waiting", *values: float | None, steps: int = 6) -> SweepRun:
    """Run with a validation every two steps."""
    points = [
        SweepPoint(step=2 * n, best=None if v is None else interval(v), best_step=2)
        for n, v in enumerate(values, 1)
    ]
    step = 2 * len(values)
    return SweepRun(seed=seed, run_id="x", state=state, step=step, steps=steps, curve=tuple(points))  # type: ignore[arg-type]


def record(*trials: list[SweepRun], **sweep: Any) -> SweepRecord:
    made = SweepRecord(
        id="01ARZ3NDEKTSV4RRFFQ69G5FAV",
        name="amber-fox",
        project="p",
        started_at=0,
        settings={},
        config=ProjectConfig.model_validate({"sweep": sweep}),
        space={"train.lr": (1.0, 2.0)},
        planned=len(trials),
        state="running",
        trials=tuple(
            SweepTrial(number=n, values={"train.lr": float(n)}, runs=tuple(runs))
            for n, runs in enumerate(trials, 1)
        ),
    )
    for number, runs in enumerate(trials, 1):
        for one in [one for one in runs if one.state != "waiting"]:
            made = changes.with_run(made, number, one)
    return made


def test_curve_has_the_best_validation_so_far_without_the_first() -> None:
    events = [validation(0, 0.9), validation(2, 0.3), validation(4, None), validation(6, 0.2)]
    curve = curve_of(events, judged=False, steps=6)
    assert [(p.step, p.best and p.best.mean, p.best_step) for p in curve] == [
        (2, 0.3, 2),
        (4, 0.3, 2),
        (6, 0.3, 2),
    ]
    assert curve_of([validation(2, None)], judged=False, steps=6)[0].best is None
    later = curve_of([*events, validation(8, 1.0)], judged=False, steps=6)
    assert later == curve  # a person extended the run


def test_curve_of_a_judged_run_uses_the_estimate_at_that_validation() -> None:
    events = [
        validation(0, None),
        validation(2, None, {2: 0.8}),
        validation(4, None, {2: 0.6, 4: 0.7}),
    ]
    curve = curve_of(events, judged=True, steps=6)
    assert [(p.best and p.best.mean, p.best_step) for p in curve] == [(0.8, 2), (0.7, 4)]


def test_quantiles_of_student_are_those_of_tables() -> None:
    table = {1: 12.706, 2: 4.303, 4.9: 2.776, 5: 2.571, 10: 2.228, 30: 2.042, 1e6: 1.960}
    for degrees, value in table.items():
        assert student_95(degrees) == pytest.approx(value, rel=0.011)


def test_one_seed_keeps_its_interval() -> None:
    assert combined([]) is None
    assert combined([interval(0.4)]) == interval(0.4)


def test_equal_seeds_do_not_shrink_the_interval() -> None:
    found = combined([interval(0.4), interval(0.4)])
    assert found is not None
    assert found.mean == pytest.approx(0.4)
    assert found.high - found.low == pytest.approx(0.2, rel=0.1)
    assert combined([interval(0.4, 0), interval(0.4, 0)]) == interval(0.4, 0)


def test_interval_over_seeds_covers_the_mean_of_the_setting() -> None:
    """Planted: seeds vary by 0.05, and the 24 scenarios, which are the same for every seed, by 0.2;
    three seeds."""
    chance = random.Random(0)
    covered = 0
    for _ in range(400):
        scenarios = [chance.gauss(0.5, 0.2) for _ in range(24)]
        runs = []
        for _ in range(3):
            shift = chance.gauss(0, 0.05)
            values = [value + shift + chance.gauss(0, 0.1) for value in scenarios]
            mean = sum(values) / 24
            error = (sum((v - mean) ** 2 for v in values) / 23 / 24) ** 0.5
            runs.append(interval(mean, 1.96 * error, 24))
        found = combined(runs)
        assert found is not None
        covered += found.low <= 0.5 <= found.high
    print(f"covered {covered} of 400")
    assert 372 <= covered <= 398


def test_trials_have_the_state_and_the_mean_of_their_runs() -> None:
    made = record(
        [run(0, "finished", 0.2, 0.4), run(1, "finished", 0.3, 0.6)],
        [run(0, "pruned", 0.1), run(1)],
        [run(0, "running", 0.1), run(1)],
        [run(0), run(1)],
    )
    assert [trial.state for trial in made.trials] == ["finished", "pruned", "running", "waiting"]
    first = made.trials[0].result
    assert first is not None
    assert first.mean == pytest.approx(0.5)
    assert best_trial(made.trials) == made.trials[0]
    assert [one.state for one in made.trials[1].runs] == ["pruned", "pruned"]
    assert saved_steps(made.trials) == 4 + 6
    found = next_run(made.trials)
    assert found is not None
    assert (found[0].number, found[1].seed) == (3, 0)


def test_a_judged_result_is_a_rate() -> None:
    judge = {"enabled": True, "models": ["openai/gpt-5.4"]}
    made = record([run(0, "finished", 0.9), run(1, "finished", 0.5)])
    config = ProjectConfig.model_validate({"judge": judge})
    made = made.model_copy(update={"config": config})
    made = changes.with_run(made, 1, made.trials[0].runs[0])
    result = made.trials[0].result
    assert result is not None
    assert (result.low, result.high) == (0.0, 1.0)
    assert made.metric == "validation/win_rate"


def test_a_trial_is_compared_by_the_mean_of_its_seeds() -> None:
    made = record(
        [run(0, "finished", 0.4, 0.5), run(1, "finished", 0.4, 0.5)],
        [run(0, "finished", 0.6, 0.9), run(1, "running", 0.1)],
        reduction_factor=2,
    )
    second = made.trials[1]
    assert may_continue(made, made.trials[0], 2)
    assert not may_continue(made, second, 2)  # (0.6 + 0.1) / 2 < 0.4
    assert may_continue(made, second, 4)  # 0.9 of the seed that got there


def test_unscored_and_failed_trials_are_no_competitors() -> None:
    made = record([run(0, "failed", 0.9)], [run(0, "running", None)], [run(0, "running", 0.1)])
    assert may_continue(made, made.trials[1], 2)
    assert may_continue(made, made.trials[2], 2)


def test_the_search_learns_from_finished_and_pruned_trials() -> None:
    made = record(
        [run(0, "finished", 0.2, 0.4)], [run(0, "pruned", 0.1)], [run(0, "failed", 0.9)], [run(0)]
    )
    found = [outcome_of(trial) for trial in made.trials]
    assert [one.state for one in found] == ["finished", "pruned", "open", "open"]
    assert found[1].curve == {2: 0.1}


def test_failures_are_counted_in_a_row_and_tried_again() -> None:
    problem = Problem(code="agent.missing", message="There is no agent.py.")
    failed = run(0, "failed").model_copy(update={"problem": problem})
    made = record([failed], [run(0, "finished", 0.1)], [failed], [failed], [run(0)])
    assert failures_in_a_row(made.trials) == 2
    assert made.trials[0].problem == problem
    again = changes.resumed(made, ActOnSweep(action="resume", budget_hours=2))
    assert [t.state for t in again.trials] == [
        "failed",
        "finished",
        "running",
        "running",
        "waiting",
    ]
    assert again.trials[2].runs[0].problem is None
    assert again.config.sweep.budget_hours == 2


def test_a_sweep_that_ends_its_engine_is_resumed_only_twice_without_a_step() -> None:
    made: SweepRecord | None = record([run(0, "running", 0.1)], [run(0)])
    for _ in range(changes.MOST_RESUMPTIONS):
        assert made is not None
        made = changes.resumed_by_itself(made)
    assert made is not None
    assert changes.resumed_by_itself(made) is None
    further = changes.with_run(made, 1, run(0, "running", 0.1, 0.2))
    again = changes.resumed_by_itself(further)
    assert again is not None
    assert again.resumptions == 1
    by_hand = changes.resumed(made, ActOnSweep(action="resume"))
    assert changes.resumed_by_itself(by_hand) is not None


def test_budget_is_the_sum_over_all_runs() -> None:
    spent = run(0, "finished", 0.1).model_copy(update={"seconds": 1800.0, "cost_usd": 2.0})
    assert changes.over_budget(record([spent], [spent])) is None
    hours = changes.over_budget(record([spent], [spent], budget_hours=1))
    assert hours is not None
    assert hours.message == "The time budget of 1 hours is used up."
    dollars = changes.over_budget(record([spent], [spent], budget_usd=4))
    assert dollars is not None
    assert dollars.code == "sweep.budget"
