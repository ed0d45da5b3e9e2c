"""Progress of a run folded from its events."""

from typing import Any, get_args

import pytest

from engine.protocol.config.project import ProjectConfig, TrainConfig
from engine.protocol.events.progress import FOLDED, KINDS, STATUS_AFTER, RunProgress
from engine.protocol.events.run import (
    Event,
    LogWritten,
    PauseRequested,
    ReviewClosed,
    ReviewOpened,
    RunContinued,
    RunExtended,
    RunFailed,
    RunFinished,
    RunPaused,
    RunQueued,
    RunStarted,
    RunStopped,
    StepFinished,
    UnknownEvent,
    ValidationFinished,
)
from engine.protocol.events.sft import LossMeasured
from engine.protocol.problems import Problem
from engine.protocol.records.runs import Interval, RunSpec, RunState

SPEC = RunSpec(
    id="r", name="amber-kestrel", project="p", started_at=0, model_path="/m",
    config=ProjectConfig(train=TrainConfig(steps=10)),
)  # fmt: skip
MEMORY = Problem(code="policy.out_of_memory", message="Out of memory.")
STARTED = RunStarted(spec=SPEC, device="H200")


def step_finished(step: int, reward: float | None = None) -> StepFinished:
    metrics = {} if reward is None else {"reward/mean": reward}
    return StepFinished(step=step, metrics=metrics)


def validation_finished(step: int, mean: float) -> ValidationFinished:
    reward = Interval(mean=mean, low=0, high=1, count=1)
    return ValidationFinished(step=step, reward=reward, scenarios={}, unscored=0, seconds=1)


def loss_measured(step: int, loss: float) -> LossMeasured:
    return LossMeasured(step=step, loss=loss, tokens=1, examples=1, seconds=1)


def fold(*events: Event | UnknownEvent) -> RunProgress:
    """Progress after these events, numbered from 1 at seconds 10, 20 …"""
    return RunProgress("r").fold_all(
        event.model_copy(update={"seq": seq, "at": 10.0 * seq})
        for seq, event in enumerate(events, 1)
    )


STATES: list[tuple[Any, RunState, bool, bool]] = [
    (RunQueued(spec=SPEC), "queued", False, False),
    (STARTED, "running", True, False),
    (PauseRequested(step=1), "pausing", True, False),
    (RunPaused(step=1), "paused", True, False),
    (RunContinued(step=1), "running", True, False),
    (ReviewOpened(step=1, until=None, then="train"), "reviewing", True, False),
    (ReviewClosed(step=1, by="person"), "running", True, False),
    (RunStopped(step=1, reason="You stopped it."), "stopped", False, True),
    (RunFailed(step=1, problem=MEMORY), "failed", False, True),
    (RunFinished(step=1, seconds=1), "finished", False, True),
]


@pytest.mark.parametrize(("event", "status", "active", "ended"), STATES)
def test_status_after_each_event(event: Any, status: RunState, active: bool, ended: bool) -> None:
    progress = fold(LogWritten(level="info", source="t", text="x"), event)
    assert (progress.status, progress.status_seq, progress.at) == (status, 2, 20.0)
    assert (progress.active, progress.ended) == (active, ended)


def test_other_events_keep_the_status() -> None:
    progress = fold(STARTED, step_finished(1), LogWritten(level="info", source="t", text="x"))
    assert (progress.status, progress.status_seq, progress.at) == ("running", 1, 30.0)


def test_time_never_goes_back_and_seq_is_kept() -> None:
    progress = fold(STARTED)
    progress.fold_progress(RunPaused(step=1, at=5.0))
    assert (progress.status, progress.status_seq, progress.at) == ("paused", 1, 10.0)


def test_requested_pause_outlasts_a_review_until_it_begins_or_is_withdrawn() -> None:
    opened = ReviewOpened(step=1, until=None, then="train")
    closed = ReviewClosed(step=1, by="person")
    assert fold(STARTED, PauseRequested(step=1), opened).status == "reviewing"
    assert fold(STARTED, PauseRequested(step=1), opened, closed).status == "pausing"
    for end in (RunPaused(step=1), RunContinued(step=1)):
        after = fold(STARTED, PauseRequested(step=1), end, opened, closed)
        assert (after.status, after.pausing) == ("running", False)


def times(*events: tuple[float, Event]) -> RunProgress:
    """Progress after events at these seconds."""
    return RunProgress("r").fold_all(
        event.model_copy(update={"seq": seq, "at": at}) for seq, (at, event) in enumerate(events, 1)
    )


NIGHT = 9 * 3600.0


def test_training_time_leaves_out_pauses_and_reviews() -> None:
    opened = ReviewOpened(step=2, until=None, then="train")
    progress = times(
        (100, STARTED),
        (160, step_finished(1)),
        (170, PauseRequested(step=1)),
        (180, RunPaused(step=1)),
        (180 + NIGHT, RunContinued(step=1)),
        (200 + NIGHT, opened),
        (500 + NIGHT, ReviewClosed(step=2, by="person")),
        (540 + NIGHT, RunFinished(step=2, seconds=1)),
    )
    assert (progress.trained_s, progress.idle_s) == (60 + 20 + 20 + 40, NIGHT + 300)
    assert progress.times_at(1e9) == (progress.trained_s, progress.idle_s), "it has ended"


@pytest.mark.parametrize(
    "last", [None, RunStopped(step=1, reason=""), RunFailed(step=1, problem=MEMORY)]
)
def test_interruption_is_idle_and_a_lost_step_is_no_training(last: Event | None) -> None:
    ended = [(160.0, last)] if last is not None else []
    progress = times(
        (100, STARTED),
        (160, step_finished(1)),
        *ended,
        (160 + NIGHT, RunStarted(spec=SPEC, resumed_from=1)),
        (190 + NIGHT, step_finished(2)),
    )
    assert (progress.trained_s, progress.idle_s) == (90, NIGHT)


def test_waiting_in_the_queue_is_neither() -> None:
    progress = times((0, RunQueued(spec=SPEC)), (NIGHT, STARTED), (NIGHT + 5, step_finished(1)))
    assert (progress.trained_s, progress.idle_s) == (5, 0)


def test_time_of_active_run_goes_on_in_its_state() -> None:
    running = times((100, STARTED), (130, step_finished(1)))
    assert running.times_at(140) == (40, 0)
    paused = times((100, STARTED), (130, RunPaused(step=0)))
    assert paused.times_at(140) == (30, 10)
    assert paused.times_at(50) == (30, 0), "a clock that is behind adds nothing"
    assert RunProgress().times_at(1e9) == (0, 0)


def test_other_events_do_not_change_the_times() -> None:
    log = LogWritten(level="info", source="t", text="x")
    whole = times((100, STARTED), (120, log), (130, step_finished(1)), (150, log))
    folded = times((100, STARTED), (130, step_finished(1)))
    assert (whole.trained_s, whole.idle_s) == (folded.trained_s, folded.idle_s) == (30, 0)


def test_new_run_is_starting() -> None:
    progress = RunProgress()
    assert (progress.status, progress.active, progress.ended) == ("starting", True, False)
    assert (progress.planned, progress.done, progress.rewards) == (0, 0, {})


def test_planned_steps_come_from_spec_until_extended() -> None:
    assert fold(RunQueued(spec=SPEC)).planned == 10
    assert fold(RunQueued(spec=SPEC)).spec == SPEC
    shorter = SPEC.model_copy(update={"config": ProjectConfig(train=TrainConfig(steps=7))})
    progress = fold(STARTED, RunExtended(steps=20), RunStarted(spec=shorter, resumed_from=0))
    assert (progress.planned, progress.spec, progress.device) == (20, shorter, "H200")
    assert fold(RunStarted(spec=shorter)).planned == 7


def test_step_rewards_are_kept() -> None:
    progress = fold(STARTED, step_finished(1, 0.25), step_finished(2), step_finished(3, 0.5))
    assert (progress.rewards, progress.done) == ({1: 0.25, 2: None, 3: 0.5}, 3)


def test_repeated_step_replaces_what_followed() -> None:
    steps = [step_finished(n, n / 10) for n in (1, 2, 3)]
    progress = fold(
        STARTED,
        *steps,
        validation_finished(1, 0.1),
        validation_finished(2, 0.2),
        step_finished(2, 0.9),
    )
    assert (progress.rewards, progress.done) == ({1: 0.1, 2: 0.9}, 2)
    assert [one.step for one in progress.validations] == [1]


def test_validation_replaces_later_ones() -> None:
    progress = fold(
        validation_finished(0, 0.1),
        validation_finished(2, 0.2),
        validation_finished(4, 0.3),
        validation_finished(2, 0.9),
    )
    validations = [(one.step, one.reward.mean) for one in progress.validations if one.reward]
    assert validations == [(0, 0.1), (2, 0.9)]


def test_losses_are_kept_by_step() -> None:
    assert fold(loss_measured(0, 2.5), loss_measured(4, 1.5), loss_measured(4, 1.25)).losses == {
        0: 2.5, 4: 1.25
    }  # fmt: skip


def test_resumed_run_keeps_steps_up_to_its_checkpoint() -> None:
    steps = [step_finished(n, n / 10) for n in (1, 2, 3)]
    failed = RunFailed(step=3, problem=MEMORY)
    progress = fold(
        STARTED, *steps, validation_finished(2, 0.2), validation_finished(3, 0.3), failed
    )
    assert (progress.problem, progress.reason) == (MEMORY, "Out of memory.")
    progress.fold_progress(RunStarted(spec=SPEC, resumed_from=2, seq=9, device="A100"))
    assert (progress.rewards, progress.done) == ({1: 0.1, 2: 0.2}, 2)
    assert [one.step for one in progress.validations] == [2]
    assert (progress.problem, progress.reason, progress.device) == (None, "", "A100")
    progress.fold_progress(RunStarted(spec=SPEC, resumed_from=0, seq=10))
    assert (progress.rewards, progress.done, progress.device) == ({}, 0, "A100")


def test_stopped_run_has_its_reason() -> None:
    progress = fold(STARTED, RunStopped(step=1, reason="You stopped it."))
    assert (progress.reason, progress.problem) == ("You stopped it.", None)


def test_folded_kinds_cover_progress_events() -> None:
    assert len(KINDS) == len(FOLDED) == len(set(KINDS))
    assert set(STATUS_AFTER) < set(FOLDED)
    assert {"run.started", "run.extended", "step.finished", "loss.measured"} <= set(KINDS)
    assert set(STATUS_AFTER.values()) <= set(get_args(RunState))


def test_win_rates_are_those_of_the_last_validation() -> None:
    rate = Interval(mean=0.7, low=0.5, high=0.9, count=8)
    first = validation_finished(0, 0.5)
    second = validation_finished(5, 0.5).model_copy(update={"win_rates": {5: rate}})
    assert (fold().win_rates, fold().win_rate) == ({}, None)
    assert (fold(first).win_rates, fold(first).win_rate) == ({}, None)
    progress = fold(first, second)
    assert (progress.win_rates, progress.win_rate) == ({5: rate}, rate)


def test_times_follow_the_events_while_the_list_already_knows_the_end() -> None:
    """The studio learns the status of a run from the engine's list before it replays the events."""
    progress = RunProgress()
    events = [(100, STARTED), (130, step_finished(1)), (160, RunFinished(step=1, seconds=1))]
    for at, event in events:
        progress.status = "finished"
        progress.fold_progress(event.model_copy(update={"at": at}))
    assert (progress.trained_s, progress.idle_s) == (60, 0)
