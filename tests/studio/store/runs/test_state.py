"""Run state folded from events: independent of batching, replays and progress ticks."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.events import run as e
from engine.protocol.events.checkpoints import (
    CheckpointBranched,
    CheckpointDropped,
    CheckpointExported,
    CheckpointPinned,
    CheckpointSaved,
)
from engine.protocol.events.history import History
from engine.protocol.events.sft import LossMeasured, WarmupFinished
from engine.protocol.problems import Problem
from engine.protocol.records.judging import Usage
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import (
    Checkpoint,
    Finding,
    GroupSummary,
    RunSummary,
    TrajectorySummary,
    Unlabelled,
)
from studio.store.runs.eta import remaining_seconds, step_seconds, usual_phases, validations_left
from studio.store.runs.parts import FlightGroup, LogLine, StepRecord
from studio.store.runs.state import HELD_OUT, LOG_LINES, RunState, SequenceGap
from tests.studio.fakes.golden import GOLDEN
from tests.studio.fakes.simulated_run import SMALL, Simulation

LOGS = {
    path.stem: [e.decode(line) for line in path.read_bytes().splitlines()]
    for path in sorted(GOLDEN.glob("*.jsonl"))
}
MINE = ("finished", "failed", "resumed", "baseline", "extended", "evaluation", "served")


def folded(events: list) -> RunState:
    return RunState("r").fold(events)


@given(name=st.sampled_from(MINE), cut=st.integers(0, 200))
def test_folding_in_two_parts_equals_folding_at_once(name: str, cut: int) -> None:
    log = LOGS[name]
    assert folded(log[:cut]).fold(log[cut:]) == folded(log)


@given(name=st.sampled_from(MINE), data=st.data())
def test_replayed_and_duplicate_events_change_nothing(name: str, data: st.DataObject) -> None:
    log = LOGS[name]
    state = RunState("r")
    place = 0
    while place < len(log):
        step = data.draw(st.integers(1, 40))
        back = data.draw(st.integers(0, 20))
        state.fold(log[max(0, place - back) : place + step])
        place += step
    assert state == folded(log)


@given(name=st.sampled_from(MINE), places=st.lists(st.integers(0, 200), max_size=5))
def test_progress_ticks_do_not_change_final_state(name: str, places: list[int]) -> None:
    tick = e.ProgressTicked(step=3, phase="rolling_out", done=3, total=8)
    log = list(LOGS[name])
    for place in places:
        log.insert(min(place, len(log)), tick)
    assert folded(log) == folded(LOGS[name])


def test_missing_event_raises_sequence_gap() -> None:
    log = LOGS["finished"]
    with pytest.raises(SequenceGap):
        folded([*log[:10], *log[11:]])


def test_unknown_event_is_skipped_but_counted() -> None:
    state = folded(LOGS["baseline"])
    seq = state.seq + 1
    line = f'{{"kind": "moon.risen", "seq": {seq}, "at": 5, "phase": "full"}}'
    assert state.apply(e.decode(line))
    assert state.seq == seq
    assert state.status == "finished"


def test_finished_run() -> None:
    state = folded(LOGS["finished"])
    assert (state.status, state.done, state.planned) == ("finished", 6, 6)
    assert [v.step for v in state.validations] == [0, 3, 6]
    assert [c.step for c in state.checkpoints] == [2, 4, 6]
    assert state.trajectories == 6 * 3 * 4
    assert list(state.series["reward/mean"].xs) == [1, 2, 3, 4, 5, 6]
    assert all(group.summary for group in state.flight.values())
    assert remaining_seconds(state, state.at) is None


def test_failed_run_keeps_problem_until_resumed() -> None:
    state = folded(LOGS["failed"])
    assert state.status == "failed"
    assert state.problem is not None
    assert state.problem.code == "policy.out_of_memory"
    assert state.done == 3
    assert state.step == 4
    spec = state.spec
    assert spec is not None
    state.apply(e.RunStarted(spec=spec, resumed_from=2, seq=state.seq + 1, at=state.at))
    assert state.status == "running"
    assert state.problem is None
    assert state.done == 2


def test_resume_rewinds_to_checkpoint() -> None:
    state = folded(LOGS["resumed"])
    assert state.resumes == [2]
    assert len(state.restarts) == 1
    assert state.planned == 8
    assert [record.step for record in state.steps] == [1, 2, 3, 4, 5]
    for name, series in state.series.items():
        assert list(series.xs) == [1, 2, 3, 4, 5], name


def test_eta_is_estimated_from_steps_and_validations() -> None:
    run = Simulation(train=SMALL)
    run.begin()
    state = RunState("r").fold(run.made.events)
    assert remaining_seconds(state, state.at) is None
    run.step(1)
    run.step(2)
    state.fold(run.made.events[state.seq :])
    usual = step_seconds(state.steps)
    assert usual is not None
    assert 100 < usual < 150
    assert validations_left(state) == 2
    assert remaining_seconds(state, state.at) == pytest.approx(4 * usual + 2 * 9.0)
    assert list(usual_phases(state)) == ["rolling_out", "training", "publishing"]
    list(run.rollouts(3))
    state.fold(run.made.events[state.seq :])
    remaining = remaining_seconds(state, state.at)
    assert remaining is not None
    assert remaining < 4 * usual + 18 - 70


def test_added_groups_are_shown_in_flight() -> None:
    state = folded(LOGS["extended"])
    assert sorted(state.flight) == [0, 1, 2, 3]
    assert state.flight[3].summary
    count = [event.kind for event in LOGS["extended"]].index("step.extended") + 1
    state = folded(LOGS["extended"][:count])
    assert state.flight[3].title == "Q3 hotel invoice total"
    assert not state.flight[3].rewards


def test_rollout_awaiting_judge_is_not_unscored_and_calls_are_counted() -> None:
    def rollout(index: int, reward: float | None, waits: bool) -> TrajectorySummary:
        return TrajectorySummary(
            id=f"t{index}",
            split="train",
            step=1,
            group=0,
            index=index,
            scenario_id="s",
            title="s",
            reward=reward,
            awaits_judge=waits,
        )

    planned = e.PlannedGroup(group=0, scenario_id="s", title="s", size=2)
    waiting = [
        e.StepStarted(step=1, groups=[planned]),
        *(e.TrajectoryRecorded(trajectory=rollout(index, None, True)) for index in (0, 1)),
        e.CallOpened(key="k", judge="j", most_usd=0.5),
    ]
    answered = [
        e.CallClosed(key="k", judge="j", usage=Usage(cost_usd=0.25), seconds=1),
        e.GroupJudged(
            split="train",
            step=1,
            group=0,
            trajectories=[rollout(0, 0.7, False), rollout(1, None, False)],
        ),
    ]
    events = [
        event.model_copy(update={"seq": seq}) for seq, event in enumerate([*waiting, *answered], 1)
    ]
    state = folded(events[: len(waiting)])
    assert (state.trajectories, state.unscored, state.judge_calls, state.judge_usd) == (2, 0, 1, 0)
    state.fold(events)
    assert (state.trajectories, state.unscored, state.judge_usd) == (2, 1, 0.25)
    assert state.flight[0].rewards == {0: 0.7, 1: None}
    again = answered[1].model_copy(update={"seq": len(events) + 1})
    assert state.fold([again]).unscored == 1


def test_evaluation_has_result_and_calls_not_counted_as_judge() -> None:
    state = folded(LOGS["evaluation"])
    assert state.evaluation is not None
    assert [one.name for one in state.evaluation.standings] == [
        "base", "amber-kestrel@40", "openai/gpt-5.4",
    ]  # fmt: skip
    assert (state.judge_calls, state.judge_usd) == (0, 0.0)
    assert state.attempts_usd == pytest.approx(6 * 0.0042)
    assert (state.planned, state.trajectories, state.status) == (0, 18, "finished")


def test_checkpoints_follow_pin_branch_and_drop_events() -> None:
    simulation = Simulation(train=SMALL)
    simulation.begin()
    for step in (1, 2, 3, 4):
        simulation.step(step)
    simulation.keep(3, {})
    made, before = simulation.made, RunState("r").fold(simulation.made.events)
    steps = [one.step for one in before.checkpoints]
    assert 3 in steps
    made.say(CheckpointPinned(step=3, pinned=True))
    made.say(CheckpointBranched(step=3, child="01CHILD", name="amber-kestrel"))
    made.say(CheckpointBranched(step=3, child="01OTHER", name="blue-heron"))
    made.say(CheckpointDropped(step=steps[0], bytes=9))
    state = folded(made.events)
    assert [one.step for one in state.checkpoints] == steps[1:]
    assert state.branches == {3: ["amber-kestrel", "blue-heron"]}
    assert state.spoken == 3


def test_queued_run_is_waiting_until_started() -> None:
    simulation = Simulation(train=SMALL)
    waiting = e.RunQueued(spec=simulation.made.spec, seq=1)
    state = folded([waiting])
    assert (state.status, state.active, state.ended) == ("queued", False, False)
    assert state.planned == SMALL.steps
    state.fold([e.RunStarted(spec=simulation.made.spec, seq=2)])
    assert (state.status, state.planned) == ("running", SMALL.steps)


SPEC = Simulation(train=SMALL).made.spec
STARTED = e.RunStarted(spec=SPEC)


def after(*events: Any, state: RunState | None = None) -> RunState:
    """Return the state after these events, numbered in order, 10 seconds apart."""
    state = state or RunState("r")
    return state.fold(
        event.model_copy(update={"seq": seq, "at": event.at or 10.0 * seq})
        for seq, event in enumerate(events, state.seq + 1)
    )


def group_of(*rewards: float | None, step: int = 1, split: Any = "train") -> GroupSummary:
    return GroupSummary(
        split=split, step=step, group=0, scenario_id="s0", title="Scenario 0",
        rewards=list(rewards), mean=None, std=None, signal=True,
    )  # fmt: skip


def row(index: int, reward: float | None = None, **fields: Any) -> TrajectorySummary:
    defaults = {"split": "train", "step": 1, "group": 0, "scenario_id": "s0", "title": "Scenario 0"}
    return TrajectorySummary.model_validate(
        defaults | {"id": f"t{index}", "index": index, "reward": reward} | fields
    )


PLANNED = e.StepStarted(
    step=1, groups=[e.PlannedGroup(group=0, scenario_id="s0", title="Scenario 0", size=4)]
)


def test_sequence_gap_names_run_and_both_events() -> None:
    with pytest.raises(SequenceGap, match=r"^run r: expected event 2, received 3$"):
        after(STARTED).apply(e.RunPaused(step=1, seq=3))


def test_apply_returns_whether_event_is_new() -> None:
    state = RunState("r")
    first = STARTED.model_copy(update={"seq": 1})
    assert state.apply(first)
    assert not state.apply(first)
    assert not state.apply(STARTED)
    assert state.seq == 1


def test_progress_tick_is_shown_only_while_current() -> None:
    tick = e.ProgressTicked(step=2, phase="rolling_out", done=3, total=8)
    state = after(STARTED, PLANNED, e.StepFinished(step=1, metrics={}))
    assert state.apply(tick)
    assert state.progress == tick
    same_step = tick.model_copy(update={"step": 1})
    assert state.apply(same_step)
    assert not after(STARTED, e.StepFinished(step=3, metrics={})).apply(tick), (
        "tick of a step before the last finished one"
    )
    after(e.PhaseChanged(step=2, phase="training"), state=state)
    assert (state.progress, state.phase, state.phase_at, state.step) == (None, "training", 40.0, 2)
    state.apply(tick)
    after(e.RunStopped(step=2, reason="x"), state=state)
    assert (state.progress, state.phase) == (None, None)
    assert not state.apply(tick)


def test_phase_event_does_not_move_step_backwards() -> None:
    state = after(
        STARTED, e.StepFinished(step=3, metrics={}), e.PhaseChanged(step=1, phase="training")
    )
    assert state.step == 3


def listed_summary(state: Any, seq: int) -> RunSummary:
    return RunSummary(
        id="r", name="r", kind="train", project="p", project_path="/p", path="/r", state=state,
        step=0, steps=1, started_at=0, changed_at=0, seq=seq,
    )  # fmt: skip


def test_engine_list_holds_until_newer_event() -> None:
    review = e.ReviewOpened(step=1, until=None, then="train")
    tick = e.ProgressTicked(step=1, phase="training", done=1, total=2)
    state = after(STARTED, review, e.PhaseChanged(step=1, phase="training"))
    state.apply(tick)
    state.obey(listed_summary("stopped", 2))
    assert (state.status, state.phase, state.progress, state.review) == ("stopped",) + (None,) * 3
    assert (state.engine_status, state.engine_seq) == ("stopped", 2)
    after(e.LogWritten(level="info", source="t", text="x"), state=state)
    assert state.status == "stopped"
    after(e.RunContinued(step=1), state=state)
    assert state.status == "running"


def test_older_engine_list_is_ignored() -> None:
    state = after(STARTED, e.RunPaused(step=1))
    state.obey(listed_summary("running", 1))
    assert state.status == "paused"
    state.obey(listed_summary("starting", 2))
    assert state.status == "starting"


def test_active_run_keeps_phase_when_listed() -> None:
    state = after(STARTED, e.PhaseChanged(step=1, phase="training"))
    state.obey(listed_summary("stopping", 2))
    assert (state.status, state.phase) == ("stopping", "training")


def test_start_clears_flight_and_keeps_current_rubric() -> None:
    judged = SPEC.model_copy(update={"rubric": "Be brief."})
    state = after(STARTED, PLANNED, e.PhaseChanged(step=1, phase="training"))
    assert (state.rubric, state.resumes) == ("", [])
    after(e.RunStarted(spec=judged, resumed_from=0), state=state)
    assert (state.rubric, state.flight, state.phase, state.phase_at) == ("Be brief.", {}, None, 40)
    after(e.RubricChanged(step=1, version="v", source="Be right."), state=state)
    after(e.RunStarted(spec=judged, resumed_from=1), state=state)
    assert (state.rubric, state.resumes) == ("Be right.", [0, 1])


def test_resumed_run_continues_after_checkpoint() -> None:
    steps = [e.StepFinished(step=n, metrics={}) for n in (1, 2, 3)]
    resumed = e.RunStarted(spec=SPEC, resumed_from=2)
    state = after(STARTED, *steps, PLANNED.model_copy(update={"step": 4}), resumed)
    assert (state.step, state.done, [one.step for one in state.steps]) == (2, 2, [1, 2])


def test_last_step_can_start_again() -> None:
    steps = [e.StepFinished(step=n, metrics={}) for n in (1, 2)]
    state = after(STARTED, *steps, PLANNED.model_copy(update={"step": 2}))
    assert (state.step, state.done) == (2, 1)


def test_policy_loaded_sets_model_facts() -> None:
    loaded = e.PolicyLoaded(
        parameters=134, trainable=4, dtype="bfloat16", seconds=3.0, sampler="vLLM fp8"
    )
    state = after(STARTED, loaded)
    assert (state.parameters, state.trainable) == (134, 4)
    assert (state.dtype, state.sampler) == ("bfloat16", "vLLM fp8")


def test_log_lines_are_counted_and_truncated() -> None:
    lines = [e.LogWritten(level="info", source="t", text=str(n)) for n in range(LOG_LINES + 2)]
    state = after(*lines)
    assert (len(state.log), state.logged) == (LOG_LINES, LOG_LINES + 2)
    assert state.log[0] == LogLine(30.0, "info", "t", "2")


@pytest.mark.parametrize(
    ("attempt", "words"),
    [(1, "It crashed. Restarting."), (2, "It crashed. Restarting (consecutive restart 2).")],
)
def test_worker_restart_is_logged_as_warning(attempt: int, words: str) -> None:
    problem = Problem(code="x.y", message="It crashed.")
    restarted = e.WorkerRestarted(worker="sampler", attempt=attempt, problem=problem)
    state = after(restarted)
    assert list(state.log) == [LogLine(10.0, "warning", "sampler", words)]
    assert [one.attempt for one in state.restarts] == [attempt]


def test_groups_are_in_flight_from_plan_to_summary() -> None:
    state = after(STARTED, PLANNED)
    assert (state.step, state.step_at) == (1, 20.0)
    assert state.flight == {0: FlightGroup(0, "s0", "Scenario 0", 4)}
    after(
        e.TrajectoryRecorded(trajectory=row(2, 0.5)),
        e.TrajectoryRecorded(trajectory=row(1)),
        e.TrajectoryRecorded(trajectory=row(0, 0.9, split="validation")),
        e.TrajectoryRecorded(trajectory=row(0, 0.8, step=2)),
        e.TrajectoryRecorded(trajectory=row(0, None, group=3)),
        state=state,
    )
    flying = state.flight[0]
    assert (flying.rewards, flying.done, flying.scored) == ({2: 0.5, 1: None}, 2, [0.5])
    assert (state.trajectories, state.unscored, state.step_unscored) == (5, 2, 2)
    summary = group_of(0.25, None, 0.5)
    after(e.GroupScored(group=summary), state=state)
    assert state.flight == {
        0: FlightGroup(0, "s0", "Scenario 0", 4, {0: 0.25, 1: None, 2: 0.5}, summary)
    }
    after(PLANNED.model_copy(update={"step": 2}), state=state)
    assert (state.step, state.step_unscored, state.unscored) == (2, 0, 2)


def test_summary_of_other_step_or_split_is_not_in_flight() -> None:
    state = after(
        STARTED, PLANNED, e.GroupScored(group=group_of(0.5, step=2)),
        e.GroupScored(group=group_of(0.5, split="validation")),
    )  # fmt: skip
    assert state.flight[0].summary is None


def test_summary_without_plan_is_in_flight() -> None:
    summary = group_of(0.5, None)
    state = after(STARTED, e.StepStarted(step=1, groups=[]), e.GroupScored(group=summary))
    assert state.flight == {0: FlightGroup(0, "s0", "Scenario 0", 2, {0: 0.5, 1: None}, summary)}


def test_restarted_step_rewinds_series() -> None:
    steps = [e.StepFinished(step=n, metrics={"reward/mean": n / 10}) for n in (1, 2, 3)]
    state = after(STARTED, *steps, PLANNED.model_copy(update={"step": 2}))
    assert (state.done, state.step, len(state.flight)) == (1, 2, 1)
    assert [one.step for one in state.steps] == [1]
    assert list(state.series["reward/mean"]) == [(1.0, 0.1)]


@pytest.mark.parametrize(
    ("begun", "metrics", "seconds"),
    [
        (100.0, {"time_s/step": 12.5}, 12.5),
        (100.0, {"time_s/step": 0.0}, 30.0),
        (100.0, {}, 30.0),
        (999.0, {}, 0.0),
        (None, {}, 0.0),
    ],
)
def test_finished_step_is_recorded(
    begun: float | None, metrics: dict[str, float], seconds: float
) -> None:
    """The step ends at second 130."""
    state = RunState("r")
    if begun is not None:
        after(e.StepStarted(step=4, groups=[], at=begun), state=state)
    finished = e.StepFinished(step=4, metrics=metrics, skipped=True, reason="No signal.", at=130.0)
    after(finished, state=state)
    assert state.steps == [StepRecord(4, 130.0, True, "No signal.", metrics, seconds)]
    assert (state.step, state.done) == (4, 4)
    assert {name: list(one) for name, one in state.series.items()} == {
        name: [(4.0, value)] for name, value in metrics.items()
    }


def test_losses_and_script_metrics_become_series() -> None:
    def loss(step: int, value: float) -> LossMeasured:
        return LossMeasured(step=step, loss=value, tokens=1, examples=1, seconds=1)

    state = after(
        loss(0, 2.5), loss(4, 1.5), loss(2, 2.0),
        e.MetricsLogged(step=1, split="train", values={"a": 1.0, "b": 2.0}),
        e.MetricsLogged(step=2, split="train", values={"a": 3.0}),
    )  # fmt: skip
    assert HELD_OUT == "validation/loss"
    assert {name: list(one) for name, one in state.series.items()} == {
        HELD_OUT: [(0.0, 2.5), (2.0, 2.0)],
        "script/a": [(1.0, 1.0), (2.0, 3.0)],
        "script/b": [(1.0, 2.0)],
    }


def group_labelled(*rows: TrajectorySummary) -> e.GroupLabelled:
    label = Label(id="x", step=1, group=0, words=(Word(kind="flag"),))
    group = group_of(*(one.reward for one in rows))
    return e.GroupLabelled(label=label, group=group, trajectories=list(rows))


def test_labels_change_rewards_until_undone() -> None:
    state = after(
        STARTED, PLANNED, *(e.TrajectoryRecorded(trajectory=row(n, 0.5)) for n in (0, 1)),
        e.TrajectoryRecorded(trajectory=row(2)),
    )  # fmt: skip
    scored = Unlabelled(reward=0.5, parts={}, problem=None)
    unscored = scored.model_copy(update={"reward": None})
    excluded = row(0, None, unlabelled=scored, labels=("exclude",))
    scored_by_person = row(2, 0.9, unlabelled=unscored, labels=("score",))
    after(group_labelled(excluded, row(1, 0.5)), state=state)
    assert (state.unscored, state.relabelled) == (2, {"t0": None})
    assert state.labelled == {("train", 1, 0)}
    assert state.flight[0].rewards == {0: None, 1: 0.5}
    after(group_labelled(excluded, row(1, 0.5), scored_by_person), state=state)
    assert (state.unscored, state.relabelled) == (1, {"t0": None, "t2": 0.9})
    after(group_labelled(row(0, 0.5), row(1, 0.5), row(2)), state=state)
    assert (state.unscored, state.relabelled, state.labelled) == (1, {}, set())
    after(group_labelled(row(0, 0.5)), state=state)
    assert state.labelled == set()


def test_reviews_open_and_close_and_batches_close() -> None:
    review = e.ReviewOpened(step=1, until=None, then="train")
    state = after(STARTED, review)
    assert state.review is not None
    assert state.review.step == 1
    after(e.ReviewClosed(step=1, by="person"), state=state)
    assert state.review is None
    after(e.BatchClosed(step=3), e.BatchClosed(step=2), state=state)
    assert state.closed == 3
    after(review, e.RunFinished(step=1, seconds=1), state=state)
    assert state.review is None


def test_calls_are_counted_by_purpose() -> None:
    problem = Problem(code="judge.refused", message="?")

    def opened(attempt: str) -> e.CallOpened:
        return e.CallOpened(key="k", judge="j", most_usd=1, attempt=attempt)

    def closed(usd: float, attempt: str, problem: Problem | None = None) -> e.CallClosed:
        usage = Usage(cost_usd=usd)
        return e.CallClosed(
            key="k", judge="j", usage=usage, seconds=1, attempt=attempt, problem=problem
        )

    state = after(
        opened(""), opened(""), opened("t1"),
        closed(0.5, ""), closed(0.25, "", problem), closed(0.0, "", problem),
        closed(4.0, "t1", problem), closed(2.0, "t1"),
    )  # fmt: skip
    assert (state.judge_calls, state.judge_failed, state.judge_usd) == (2, 2, 0.75)
    assert state.attempts_usd == 6.0


def test_canaries_findings_and_warmup_are_stored() -> None:
    def canary(caught: bool) -> e.CanaryJudged:
        return e.CanaryJudged(
            step=1, group=0, what="w", judge="j", score=0.1, others=0.5, caught=caught
        )

    findings = [Finding(code=code, title="t", words="w") for code in ("a", "b")]
    warmup = WarmupFinished(examples=3, losses=[2.0], seconds=1.0)
    state = after(
        canary(True), canary(False), warmup,
        e.DiagnosisChanged(step=1, findings=findings[:1]),
        e.DiagnosisChanged(step=2, findings=findings),
    )  # fmt: skip
    assert (state.canaries, state.findings) == ([True, False], findings)
    assert state.warmup is not None
    assert state.warmup.examples == 3


def checkpoint(step: int, size: int = 1) -> CheckpointSaved:
    path = f"checkpoints/step-{step:06d}"
    return CheckpointSaved(checkpoint=Checkpoint(step=step, path=path, bytes=size, at=0))


def test_checkpoint_replaces_later_ones() -> None:
    state = after(checkpoint(2), checkpoint(4), checkpoint(6), checkpoint(4, 9))
    assert [(one.step, one.bytes) for one in state.checkpoints] == [(2, 1), (4, 9)]


def test_exports_are_stored_and_counted() -> None:
    exported = CheckpointExported(
        step=4, format="merged", dtype="bfloat16", path="/x", bytes=1, verdict="equal"
    )
    state = after(exported, exported)
    assert ([one.step for one in state.exports], state.spoken) == ([4, 4], 2)


def history(first: int, last: int, *events: Any, **fields: Any) -> History:
    lines = [
        e.encode(event.model_copy(update={"seq": seq, "at": 10.0 * seq}))
        for seq, event in enumerate(events, first)
    ]
    return History(first=first, lines=lines, seq=last, at=500.0, **fields)


def test_history_replaces_its_events() -> None:
    state = RunState("r", awaiting={"a", "b", "c", "d"}, trajectories=1, unscored=2, logged=3)
    state.judge_calls, state.judge_failed, state.judge_usd, state.attempts_usd = 4, 5, 6.0, 7.0
    unknown = '{"kind": "moon.risen", "seq": 3, "at": 30}'
    condensed = history(
        1, 9, STARTED, e.RunPaused(step=1), trajectories=10, unscored=20, logged=30,
        judge_calls=40, judge_failed=50, judge_usd=60.0, attempts_usd=70.0,
        recorded=("d", "e"), awaiting=("e",),
        settled=(("a", False, True), ("b", False, False), ("c", True, True), ("z", False, True)),
    )  # fmt: skip
    condensed = condensed.model_copy(update={"lines": [*condensed.lines, unknown]})
    assert state.apply(condensed)
    assert (state.seq, state.at, state.status) == (9, 500.0, "paused")
    assert state.awaiting == {"c", "e"}
    assert (state.trajectories, state.unscored, state.logged) == (11, 2 + 1 + 20, 33)
    assert (state.judge_calls, state.judge_failed) == (44, 55)
    assert (state.judge_usd, state.attempts_usd) == (66.0, 77.0)


def test_parts_of_a_history_have_the_effect_of_the_whole() -> None:
    steps = [e.StepFinished(step=n, metrics={"loss": float(n)}) for n in range(1, 8)]
    condensed = history(1, 20, STARTED, *steps, trajectories=10, recorded=("a",), judge_calls=4)
    whole, split = RunState("r"), RunState("r")
    whole.apply(condensed)
    parts = condensed.parts(3)
    assert [(one.first, one.seq) for one in parts] == [(1, 3), (4, 6), (7, 20)]
    split.fold(parts)
    assert split == whole
    assert history(1, 4).parts(3) == [history(1, 4)]


def test_history_with_gap_raises_sequence_gap() -> None:
    state = after(STARTED)
    with pytest.raises(SequenceGap, match="expected event 2, received 3"):
        state.apply(history(3, 9))
    assert not state.apply(history(1, 1))
    assert state.apply(history(2, 4))
    assert state.seq == 4


def test_history_does_not_move_clock_backwards() -> None:
    state = after(STARTED.model_copy(update={"at": 900.0}))
    state.apply(history(2, 4))
    assert state.at == 900.0
