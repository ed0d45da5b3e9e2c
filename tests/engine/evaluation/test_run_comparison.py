"""Comparison of runs by their validations: measure, steps, pairs by scenario."""

from engine.evaluation.run_comparison import (
    Candidate,
    compared,
    measure_of,
    scenario_table,
    scenario_wins,
)
from engine.protocol.events.run import ValidationFinished
from engine.protocol.records.comparison import StepComparison
from engine.protocol.records.runs import Interval


def interval(mean: float) -> Interval:
    return Interval(mean=mean, low=mean - 0.1, high=mean + 0.1, count=8)


def ruled(name: str, *means: float) -> Candidate:
    """Run with rewards, validated at steps 0, 10, …"""
    return Candidate(
        name,
        name,
        [
            ValidationFinished(
                step=10 * place, reward=interval(mean), scenarios={}, unscored=0, seconds=1
            )
            for place, mean in enumerate(means)
        ],
    )


def judged(name: str, scores: dict[int, dict[str, float]], unjudged: int = 0) -> Candidate:
    """Run without rewards, whose validations were compared with that of step 0."""
    first = ValidationFinished(step=0, reward=None, scenarios={}, unscored=0, seconds=1)
    rates = {0: interval(0.5)} | {
        step: interval(sum(of.values()) / len(of)) for step, of in scores.items()
    }
    later = [
        ValidationFinished(
            step=step, reward=None, scenarios={}, unscored=0, seconds=1, win_rates=rates,
            against=(StepComparison(opponent=0, scores=of, unjudged=unjudged),),
        )
        for step, of in scores.items()
    ]  # fmt: skip
    return Candidate(name, name, [first, *later])


def test_best_is_the_earliest_of_equal_validations_and_last_the_newest() -> None:
    run = ruled("a", 0.2, 0.8, 0.8, 0.5)
    assert (run.chosen("reward", "best"), run.chosen("reward", "last")) == (10, 30)
    assert run.chosen("win_rate", "best") is None


def test_judged_runs_are_compared_by_win_rate() -> None:
    rules, judge = ruled("a", 0.2, 0.8), judged("b", {10: {"s": 1.0}})
    assert measure_of([rules, rules]) == "reward"
    assert measure_of([judge, judge]) == "win_rate"
    assert measure_of([rules, judge]) == "win_rate"
    assert measure_of([rules, ruled("c")]) == "reward"


def test_wins_against_own_baseline_with_what_was_not_judged() -> None:
    run = judged("a", {10: {"s": 1.0, "t": 0.5}, 20: {"s": 0.0}}, unjudged=1)
    wins = scenario_wins(run, 10)
    assert (wins["s"], wins["t"]) == (1.0, 0.5)
    assert list(wins.values()).count(None) == 1
    assert scenario_wins(run, 0) == {"s": 0.5, "t": 0.5}


def test_runs_are_paired_by_scenario_with_the_first() -> None:
    scenarios = [f"s{n}" for n in range(8)]
    base: dict[str, float | None] = dict.fromkeys(scenarios, 0.25)
    better: dict[str, float | None] = {name: 0.5 + n / 20 for n, name in enumerate(scenarios)}
    broken: dict[str, float | None] = {**base, "s0": None}
    runs = [ruled("a", 0.25), ruled("b", 0.7), ruled("c", 0.2), ruled("d")]
    found = compared(runs, [0, 0, 0, None], [base, better, broken, {}], "reward")
    assert found[0].versus is None
    versus = found[1].versus
    assert versus
    assert (versus.word, versus.wins, versus.losses) == ("better", 8, 0)
    assert versus.difference
    assert versus.difference.low > 0
    assert found[2].unscored == 1
    assert found[2].versus
    assert (found[2].versus.ties, found[2].versus.word) == (7, "no difference shown")
    assert (found[3].step, found[3].result, found[3].versus) == (None, None, None)


def test_scenarios_with_the_largest_difference_come_first() -> None:
    rows = scenario_table([{"a": 0.1, "b": 0.5, "c": None}, {"a": 0.2, "b": 0.9}], {"b": "Two"})
    assert [(row.scenario_id, row.title) for row in rows] == [("b", "Two"), ("a", "a")]
    assert rows[0].scores == [0.5, 0.9]
