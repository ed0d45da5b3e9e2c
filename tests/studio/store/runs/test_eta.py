"""Estimated remaining time of a run."""

import pytest

from engine.protocol.config.project import ProjectConfig, TrainConfig
from engine.protocol.events.run import ValidationFinished
from engine.protocol.records.runs import RunSpec
from studio.store.runs.eta import (
    RECENT,
    remaining_seconds,
    step_seconds,
    usual_phases,
    usual_switch,
    validation_seconds,
    validations_left,
)
from studio.store.runs.parts import StepRecord
from studio.store.runs.series import Series
from studio.store.runs.state import RunState


def steps(*seconds: float) -> list[StepRecord]:
    return [StepRecord(n, 0.0, False, "", {}, one) for n, one in enumerate(seconds, 1)]


def validations(*points: tuple[int, float]) -> list[ValidationFinished]:
    return [
        ValidationFinished(step=step, reward=None, scenarios={}, unscored=0, seconds=seconds)
        for step, seconds in points
    ]


def running(every: int = 5, planned: int = 20, **fields: object) -> RunState:
    train = TrainConfig(steps=20, validate_every=every)
    spec = RunSpec(
        id="r", name="r", project="p", started_at=0, model_path="/m",
        config=ProjectConfig(train=train),
    )  # fmt: skip
    return RunState("r", status="running", spec=spec, planned=planned, **fields)  # type: ignore[arg-type]


def test_step_seconds_is_median_of_recent_steps() -> None:
    assert step_seconds([]) is None
    assert step_seconds(steps(0.0, -1.0)) is None
    assert step_seconds(steps(10.0, 0.0, 30.0, 0.5)) == 10.0
    assert step_seconds(steps(1000.0, *[2.0] * (RECENT // 2), *[4.0] * (RECENT // 2))) == 3.0


def test_validation_seconds_is_median_of_last_three() -> None:
    assert validation_seconds(running()) == 0.0
    three = validations((0, 100.0), (5, 1.0), (10, 9.0), (15, 2.0))
    assert validation_seconds(running(validations=three)) == 2.0


@pytest.mark.parametrize(
    ("every", "planned", "last", "left"),
    [
        (5, 20, 0, 4),
        (5, 20, 5, 3),
        (5, 20, 7, 3),
        (5, 20, 20, 0),
        (5, 22, 0, 5),  # after steps 5, 10, 15, 20 and 22
        (5, 22, 20, 1),
        (5, 22, 22, 0),
        (5, 10, 20, 0),
        (0, 20, 0, 1),
        (0, 20, 20, 0),
        (1, 3, 1, 2),
    ],
)
def test_validations_left_counts_every_n_steps_and_last(
    every: int, planned: int, last: int, left: int
) -> None:
    state = running(every, planned, validations=validations((0, 1.0), (last, 1.0)))
    assert validations_left(state) == left


def test_run_without_validation_has_none_left() -> None:
    assert validations_left(running()) == 0
    assert validations_left(RunState("r", validations=validations((0, 1.0)))) == 0


def test_remaining_time_sums_steps_and_validations_left() -> None:
    state = running(steps=steps(10.0), done=4, step=4, validations=validations((0, 3.0)))
    assert remaining_seconds(state, 0.0) == 16 * 10.0 + 4 * 3.0


@pytest.mark.parametrize(
    ("now", "left"), [(90.0, 160.0), (100.0, 160.0), (104.0, 156.0), (110.0, 150.0), (999.0, 150.0)]
)
def test_current_step_counts_at_most_its_usual_time(now: float, left: float) -> None:
    state = running(steps=steps(10.0), done=4, step=5, step_at=100.0)
    assert remaining_seconds(state, now) == left


@pytest.mark.parametrize(
    ("status", "left"), [("running", 156.0), ("paused", 160.0), ("reviewing", 160.0)]
)
def test_remaining_time_is_constant_while_run_waits(status: str, left: float) -> None:
    state = running(steps=steps(10.0), done=4, step=5, step_at=100.0)
    state.status = status  # type: ignore[assignment]
    assert remaining_seconds(state, 104.0) == left


def test_steps_beyond_plan_add_no_negative_time() -> None:
    state = running(steps=steps(10.0), done=21, step=21, validations=validations((15, 3.0)))
    assert remaining_seconds(state, 0.0) == 3.0


def test_remaining_time_is_unknown_without_steps_plan_or_after_end() -> None:
    assert remaining_seconds(running(), 0.0) is None
    assert remaining_seconds(running(planned=0, steps=steps(10.0)), 0.0) is None
    ended = running(steps=steps(10.0))
    ended.status = "finished"
    assert remaining_seconds(ended, 0.0) is None


def series(*ys: float) -> Series:
    made = Series()
    for x, y in enumerate(ys):
        made.append(x, y)
    return made


def test_usual_phases_are_medians_of_recent_steps() -> None:
    state = running(
        series={
            "time_s/training": series(999.0, 999.0, *[4.0] * RECENT),
            "time_s/rolling_out": series(1.0, 2.0, 6.0, -1.0),
            "time_s/publishing": series(-1.0),
            "time_s/other": series(1.0),
        }
    )
    assert list(usual_phases(state).items()) == [("rolling_out", 2.0), ("training", 4.0)]
    assert usual_phases(running(series={"time_s/publishing": series(0.0)})) == {"publishing": 0.0}


def test_usual_switch_is_median_of_recent_steps() -> None:
    assert usual_switch(running()) is None
    state = running(series={"time_s/switch": series(99.0, *[2.0] * RECENT)})
    assert usual_switch(state) == 2.0
