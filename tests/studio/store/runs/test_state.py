"""A run's state is the same however its events arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.events import run as e
from engine.protocol.events.checkpoints import (
    CheckpointBranched,
    CheckpointDropped,
    CheckpointPinned,
)
from engine.protocol.records.judging import Usage
from engine.protocol.records.runs import TrajectorySummary
from studio.store.runs.eta import remaining_seconds, step_seconds, usual_phases, validations_left
from studio.store.runs.state import RunState, SequenceGap
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
def test_any_prefix_then_the_rest_equals_all_at_once(name: str, cut: int) -> None:
    log = LOGS[name]
    assert folded(log[:cut]).fold(log[cut:]) == folded(log)


@given(name=st.sampled_from(MINE), data=st.data())
def test_replays_and_duplicates_change_nothing(name: str, data: st.DataObject) -> None:
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
def test_ticks_change_nothing_that_is_kept(name: str, places: list[int]) -> None:
    tick = e.ProgressTicked(step=3, phase="rolling_out", done=3, total=8)
    log = list(LOGS[name])
    for place in places:
        log.insert(min(place, len(log)), tick)
    assert folded(log) == folded(LOGS[name])


def test_a_missing_event_is_refused() -> None:
    log = LOGS["finished"]
    with pytest.raises(SequenceGap):
        folded([*log[:10], *log[11:]])


def test_unknown_events_are_skipped_but_counted() -> None:
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


def test_failed_run_keeps_its_problem_until_it_is_resumed() -> None:
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


def test_resume_rewinds_to_its_checkpoint() -> None:
    state = folded(LOGS["resumed"])
    assert state.resumes == [2]
    assert len(state.restarts) == 1
    assert state.planned == 8
    assert [record.step for record in state.steps] == [1, 2, 3, 4, 5]
    for name, series in state.series.items():
        assert list(series.xs) == [1, 2, 3, 4, 5], name


def test_eta_is_learnt_from_steps_and_counts_validations() -> None:
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
    left = remaining_seconds(state, state.at)
    assert left is not None
    assert left < 4 * usual + 18 - 70


def test_groups_that_come_later_fly_with_the_others() -> None:
    state = folded(LOGS["extended"])
    assert sorted(state.flight) == [0, 1, 2, 3]
    assert state.flight[3].summary
    begun = [event.kind for event in LOGS["extended"]].index("step.extended") + 1
    state = folded(LOGS["extended"][:begun])
    assert state.flight[3].title == "Q3 hotel invoice total"
    assert not state.flight[3].rewards


def test_who_waits_for_a_judge_is_not_unscored_and_calls_are_counted() -> None:
    def attempt(index: int, reward: float | None, waits: bool) -> TrajectorySummary:
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
        *(e.TrajectoryRecorded(trajectory=attempt(index, None, True)) for index in (0, 1)),
        e.CallOpened(key="k", judge="j", most_usd=0.5),
    ]
    answered = [
        e.CallClosed(key="k", judge="j", usage=Usage(cost_usd=0.25), seconds=1),
        e.GroupJudged(
            split="train",
            step=1,
            group=0,
            trajectories=[attempt(0, 0.7, False), attempt(1, None, False)],
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


def test_an_evaluation_has_a_result_and_its_calls_are_no_judges() -> None:
    state = folded(LOGS["evaluation"])
    assert state.evaluation is not None
    assert [one.name for one in state.evaluation.standings] == [
        "base", "amber-kestrel@40", "openai/gpt-5.4",
    ]  # fmt: skip
    assert (state.judge_calls, state.judge_usd) == (0, 0.0)
    assert state.attempts_usd == pytest.approx(6 * 0.0042)
    assert (state.planned, state.trajectories, state.status) == (0, 18, "finished")


def test_what_is_said_of_checkpoints() -> None:
    simulation = Simulation(train=SMALL)
    simulation.begin()
    for step in (1, 2, 3, 4):
        simulation.step(step)
    simulation.keep(3, {})
    made, known = simulation.made, RunState("r").fold(simulation.made.events)
    steps = [one.step for one in known.checkpoints]
    assert 3 in steps
    made.say(CheckpointPinned(step=3, pinned=True))
    made.say(CheckpointBranched(step=3, child="01CHILD", name="amber-kestrel"))
    made.say(CheckpointBranched(step=3, child="01OTHER", name="blue-heron"))
    made.say(CheckpointDropped(step=steps[0], bytes=9))
    state = folded(made.events)
    assert [one.step for one in state.checkpoints] == steps[1:]
    assert state.branches == {3: ["amber-kestrel", "blue-heron"]}
    assert state.spoken == 3


def test_a_queued_run_waits_and_is_started() -> None:
    simulation = Simulation(train=SMALL)
    waiting = e.RunQueued(spec=simulation.made.spec, seq=1)
    state = folded([waiting])
    assert (state.status, state.active, state.ended) == ("queued", False, False)
    assert state.planned == SMALL.steps
    state.fold([e.RunStarted(spec=simulation.made.spec, seq=2)])
    assert (state.status, state.planned) == ("running", SMALL.steps)
