"""Diagnosis findings: a figure, its cause and one suggestion; cleared when the cause ends."""

import pytest

from engine.protocol.events.run import ValidationFinished
from engine.protocol.problems import Problem
from engine.protocol.records.runs import Finding, Interval, Trajectory
from engine.training.diagnosis import findings, unscored_causes

FINE = {
    "unscored": 0.0, "trajectories": 64.0, "groups/no_signal": 0.1, "truncated": 0.0,
    "entropy": 1.0, "reward/mean": 0.5, "reward/max": 1.0, "logprob_gap/mean": 0.001,
}  # fmt: skip


def codes(*changes: dict[str, float]) -> list[str]:
    return [f.code for f in findings([{**FINE, **c} for c in changes], 8, 6)]


def test_healthy_run_has_no_findings() -> None:
    assert codes({}, {}, {}) == []
    assert findings([], 8, 6) == []


def test_each_cause_has_its_finding() -> None:
    assert codes({"groups/no_signal": 0.5}) == ["no_signal"]
    assert codes({"truncated": 0.41}) == ["truncated"]
    assert codes({"logprob_gap/mean": 0.3}) == ["apart"]
    fading = [{"entropy": value} for value in (1.0, 0.5, 0.2, 0.1, 0.01)]
    assert codes(*fading) == ["collapsed"]


def test_off_policy_drift_is_reported_once_by_its_nearest_cause() -> None:
    assert codes({"logprob_gap/mean": 0.15, "ess": 0.3, "clip/high": 0.4}) == ["apart"]
    assert codes({"ess": 0.3, "clip/high": 0.4, "ratio/max": 17.0}) == ["few_count"]
    assert codes({"clip/low": 0.12, "clip/high": 0.1}) == ["clipped"]
    assert codes({"clip/low": 0.05, "clip/high": 0.1, "ess": 0.6}) == []


def test_off_policy_drift_is_reported_only_over_several_steps() -> None:
    assert codes({}, {}, {}, {}, {"logprob_gap/mean": 0.3}) == []
    assert codes({"logprob_gap/mean": 0.3}, {}, {"logprob_gap/mean": 0.3}) == ["apart"]


def test_masked_tokens_are_reported_beside_drift() -> None:
    assert codes({"masked": 0.2}) == ["masked"]
    assert codes({"masked": 0.2, "ess": 0.2}) == ["few_count", "masked"]


def test_rising_entropy_without_better_reward_is_reported() -> None:
    scattering = [{"entropy": 1.0, "reward/mean": 0.5}] * 5 + [
        {"entropy": 2.4, "reward/mean": 0.4}
    ] * 5
    assert codes(*scattering) == ["scattered"]
    improving = [{**step, "reward/mean": 0.4 + n / 10} for n, step in enumerate(scattering)]
    assert codes(*improving) == []
    assert codes(*scattering[:7]) == []


def validation(
    step: int, *, reward: float | None = None, rate: float | None = None
) -> ValidationFinished:
    """Validation whose intervals reach 0.1 below and above the mean reward or the win rate."""

    def around(mean: float) -> Interval:
        return Interval(mean=mean, low=mean - 0.1, high=mean + 0.1, count=24)

    return ValidationFinished(
        step=step,
        reward=None if reward is None else around(reward),
        scenarios={},
        unscored=0,
        seconds=1.0,
        win_rates={} if rate is None else {step: around(rate)},
    )


def found(*validations: ValidationFinished) -> list[Finding]:
    return findings([FINE], 8, 6, (), validations)


def test_validation_that_is_surely_worse_than_the_first_is_reported() -> None:
    assert found(validation(0, reward=0.5), validation(5, reward=0.35)) == []
    (worse,) = found(validation(0, reward=0.5), validation(5, reward=0.25))
    assert (worse.code, worse.where) == ("worse_than_baseline", "chart:reward")
    assert "from 0.50 to 0.25 after step 5" in worse.words
    assert found(validation(0), validation(5, rate=0.45)) == []
    (worse,) = found(validation(0), validation(5, rate=0.3))
    assert worse.where == "chart:win_rate"
    assert "after step 5 is 30 % (95 % interval 20 % to 40 %)" in worse.words


def test_only_the_last_validation_counts_and_needs_a_result() -> None:
    first = validation(0, reward=0.5)
    assert found(first, validation(5, reward=0.1), validation(10, reward=0.5)) == []
    assert found(first, validation(5)) == []
    assert found(validation(0), validation(5, reward=0.1)) == []
    assert found(validation(0, reward=0.1)) == []


@pytest.mark.parametrize(("rate", "codes"), [(None, []), (0.6, []), (0.45, ["scattered"])])
def test_rising_entropy_of_a_judged_run_is_measured_by_its_win_rate(
    rate: float | None, codes: list[str]
) -> None:
    judged = {**FINE, "reward/part/ruler": 0.5}
    history = [{**judged, "entropy": 1.0}] * 5 + [{**judged, "entropy": 2.4}] * 5
    validations = [validation(0), validation(10, rate=rate)]
    assert [one.code for one in findings(history, 8, 6, (), validations)] == codes


def test_findings_show_figures_and_a_suggestion() -> None:
    last = {**FINE, "ess": 0.31, "ratio/max": 23.0, "masked": 0.2}
    findings_ = findings([last], 8, 6)
    assert "31 %" in findings_[0].words
    assert "importance ratio is 23." in findings_[0].words
    for finding in findings_:
        assert finding.suggestion
        assert finding.where.startswith("chart:")


def failed(code: str, count: int, message: str = "It broke.", hint: str = "") -> list[Trajectory]:
    problem = Problem(code=code, message=message, hint=hint)
    return [
        Trajectory(
            id=f"{code}-{n}", split="train", step=1, group=0, index=n, scenario_id="s", title="",
            reward=None, problem=problem,
        )
        for n in range(count)
    ]  # fmt: skip


def unscored_findings(*trajectories: Trajectory) -> list[Finding]:
    return findings([FINE], 8, 6, unscored_causes(trajectories))


def test_unscored_rollouts_are_explained_by_their_problems() -> None:
    budget = failed("judge.budget", 40, "The judge's budget is used up.", "Raise budget_usd.")
    findings_ = unscored_findings(
        *failed("agent.crashed", 9, "The agent raised KeyError."), *budget
    )
    assert [one.code for one in findings_] == ["unscored", "unscored_too"]
    assert findings_[0].title == "40 of 64 rollouts are unscored."
    assert "agent is not the cause. The judge's budget is used up." in findings_[0].words
    assert findings_[0].suggestion == "Raise budget_usd."
    assert "The agent failed. The agent raised KeyError." in findings_[1].words
    assert findings_[1].suggestion
    for code, words in (
        ("judge.unreachable", "not the cause"),
        ("gateway.bad_message", "request of the agent was rejected"),
        ("reward.missing", "returned no valid reward"),
        ("policy.died", "rollout itself failed"),
    ):
        assert words in unscored_findings(*failed(code, 20))[0].words


def test_few_or_excluded_unscored_rollouts_are_no_finding() -> None:
    assert unscored_findings(*failed("agent.crashed", 6)) == []
    assert unscored_findings(*failed("label.excluded", 64)) == []


def test_truncated_rollouts_are_explained_by_their_limit() -> None:
    def words(limit: int, **shares: float) -> str:
        return findings([FINE | {"truncated": 0.5} | shares], 8, limit)[0].words

    assert "64 tokens (train.max_tokens)" in words(64, **{"truncated/max_tokens": 0.5})
    assert "agent's own requests" in words(
        64, **{"truncated/agent": 0.4, "truncated/max_tokens": 0.1}
    )
    assert "model.max_context" in words(64, **{"truncated/context": 0.5})
    assert "agent's own requests" in words(0)


def test_finding_is_cleared_with_its_cause() -> None:
    assert codes({"truncated": 0.9}, {"truncated": 0.0}) == []


def test_at_most_three_findings_are_reported() -> None:
    all_causes = {"masked": 0.9, "groups/no_signal": 1, "truncated": 1, "logprob_gap/mean": 1}
    assert len(codes(all_causes)) == 3


def test_reward_hacking_signs_are_reported() -> None:
    assert codes({"watch/addresses_judge": 2 / 64}) == ["addressed"]
    assert codes({"judge/canaries": 0.0}, {}) == ["fooled"]
    assert codes({"judge/canaries": 0.0}, {"judge/canaries": 1.0}) == []
    opposed = [
        {"reward/part/ruler": 0.4 + 0.04 * n, "reward/part/rules": 0.6 - 0.02 * n}
        for n in range(12)
    ]
    assert codes(*opposed) == ["pleasing"]
    parallel = [
        {"reward/part/ruler": 0.4 + 0.04 * n, "reward/part/rules": 0.5 + 0.02 * n}
        for n in range(12)
    ]
    assert codes(*parallel) == []
    growing = [
        {"reward/part/ruler": 0.4 + 0.02 * n, "tokens/completion_mean": 50.0 + 10 * n}
        for n in range(12)
    ]
    assert codes(*growing) == ["padding"]
