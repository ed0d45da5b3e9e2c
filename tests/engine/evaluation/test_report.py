"""Tables printed by `eval`."""

from engine.cli.commands.evaluate import report
from engine.protocol.records.comparison import Comparison, EvaluationResult, Standing, TagStandings
from engine.protocol.records.runs import Interval


def standing(name: str, mean: float | None, versus: Comparison | None = None) -> Standing:
    reward = None if mean is None else Interval(mean=mean, low=mean - 0.1, high=mean + 0.1, count=9)
    return Standing(
        name=name, kind="base", attempts=9, unscored=2, reward=reward, latency_median_s=1.25,
        latency_p90_s=3.0, tokens_mean=40.0, usd_per_1000=None if versus is None else 0.5,
        versus=versus,
    )  # fmt: skip


def result(*standings: Standing) -> EvaluationResult:
    tags = [TagStandings(tag="easy", scenarios=3, standings=list(standings))]
    return EvaluationResult(
        done=18, total=18, scenarios=9, attempts=1, seed=4, judged=True,
        standings=list(standings), tags=tags,
    )  # fmt: skip


def test_report_shows_difference_interval_p_value_and_verdict() -> None:
    difference = Interval(mean=-0.25, low=-0.4, high=-0.1, count=8)
    versus = Comparison(
        against="base", difference=difference, p=0.0123, wins=1, ties=2, losses=5, word="worse"
    )
    text = report(result(standing("base", 0.75), standing("tuned", 0.5, versus)))
    assert "9 scenarios, 1 rollout each, seed 4, also scored by the judge" in text
    assert "Tag easy (3 scenarios)" in text
    (tuned, _) = [line for line in text.splitlines() if line.startswith("tuned")]
    for words in (
        "0.500", "[0.400, 0.600]", "−0.250", "[−0.400, −0.100] n=8: worse", "0.012", "1/2/5",
        "1.2 s", "0.50",
    ):  # fmt: skip
        assert words in tuned


def test_report_says_when_nothing_is_scored() -> None:
    versus = Comparison(
        against="base", difference=None, p=0.00025, wins=0, ties=0, losses=0,
        word="no difference shown",
    )  # fmt: skip
    assert "<0.001" in report(result(standing("base", None), standing("x", None, versus)))
    assert "No rollout could be scored" in report(result(standing("base", None)))
