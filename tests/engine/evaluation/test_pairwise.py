"""Comparison of a validation with earlier ones: opponents, scenarios without a pair, costs."""

import asyncio
from types import SimpleNamespace
from typing import Any

from engine.evaluation.pairwise import PairwiseJudge, opponents
from engine.protocol.config.project import JudgeConfig
from engine.protocol.events.run import ValidationFinished
from engine.protocol.problems import Problem
from engine.protocol.records.judging import Verdict
from engine.protocol.records.runs import Interval, Trajectory

FAILED = Problem(code="agent.timeout", message="Too slow.")


def rollout(name: str, scenario: str, problem: Problem | None = None) -> Trajectory:
    return Trajectory(
        id=name, split="validation", step=0, group=0, index=0, scenario_id=scenario, title="",
        reward=None if problem else 0.5, problem=problem,
    )  # fmt: skip


def validation(step: int, rates: dict[int, float] | None = None) -> ValidationFinished:
    intervals = {
        number: Interval(mean=rate, low=0, high=1, count=9)
        for number, rate in (rates or {}).items()
    }
    return ValidationFinished(
        step=step, reward=None, scenarios={}, unscored=0, seconds=0, win_rates=intervals
    )


class Panel:
    """Judge that ranks rollouts by a number in their id, and counts its calls."""

    absolute = False

    def __init__(self) -> None:
        self.groups: list[list[str]] = []

    async def judge(self, group: list[Trajectory]) -> list[Verdict]:
        self.groups.append([one.id for one in group])
        return [
            Verdict(trajectory_id=one.id, judge="j", rubric="r", score=int(one.id[-1]) / 10)
            for one in group
            if one.problem is None
        ]


def judge_after(
    events: list[ValidationFinished], stored: dict[int, list[Trajectory]], step: int
) -> tuple[PairwiseJudge, Panel]:
    panel = Panel()
    reader = SimpleNamespace(
        events_of=lambda *kinds: events, stored=lambda split, number: stored[number]
    )
    config = SimpleNamespace(judge=JudgeConfig(models=("j",)))
    run: Any = SimpleNamespace(reader=reader, config=config)
    return PairwiseJudge(run, panel, step), panel  # type: ignore[arg-type]


def test_opponents_are_the_first_and_the_best_validation() -> None:
    assert opponents([]) == []
    assert opponents([validation(0)]) == [0]
    assert opponents([validation(0), validation(5, {5: 0.4})]) == [0]
    assert opponents([validation(0), validation(9, {5: 0.7, 9: 0.6})]) == [0, 5]


def test_each_scenario_is_ranked_once_with_all_opponents() -> None:
    events = [validation(0), validation(5, {5: 0.7})]
    stored = {0: [rollout("a3", "s"), rollout("b9", "t")], 5: [rollout("c5", "s")]}
    judge, panel = judge_after(events, stored, 10)
    groups = [[rollout("x5", "s")], [rollout("y2", "t")]]

    async def compare() -> Any:
        verdicts = await judge.judge(groups[0])
        assert [one.trajectory_id for one in verdicts] == ["x5"]
        return await judge.comparisons(groups)

    baseline, best = asyncio.run(compare())
    assert panel.groups == [["x5", "a3", "c5"], ["y2", "b9"]]
    assert (baseline.opponent, baseline.scores, baseline.unjudged) == (0, {"s": 1, "t": 0}, 0)
    assert (best.opponent, best.scores, best.unjudged) == (5, {"s": 0.5}, 1)
    assert set(judge.win_rates(10, (baseline, best))) == {5, 10}


def test_failed_rollouts_are_not_judged_and_not_counted_as_losses() -> None:
    stored = {0: [rollout("a3", "s"), rollout("b9", "t", FAILED)]}
    judge, panel = judge_after([validation(0)], stored, 5)
    groups = [[rollout("x5", "s", FAILED)], [rollout("y2", "t")]]
    (baseline,) = asyncio.run(judge.comparisons(groups))
    assert panel.groups == [["y2"]], "the prompt of a failed rollout would be paid for nothing"
    assert (baseline.scores, baseline.unjudged) == ({}, 2)
    assert judge.win_rates(5, (baseline,)) == {}


def test_first_validation_waits_and_later_ones_do_not() -> None:
    assert judge_after([], {}, 0)[0].waits
    assert not judge_after([validation(0)], {0: []}, 5)[0].waits
