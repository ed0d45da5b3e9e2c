"""Findings say a figure, its cause and one thing to try; they go away with their cause."""

from engine.protocol.problems import Problem
from engine.protocol.records.runs import Finding, Trajectory
from engine.training.diagnosis import findings, unscored_causes

FINE = {
    "unscored": 0.0, "trajectories": 64.0, "groups/no_signal": 0.1, "truncated": 0.0,
    "entropy": 1.0, "reward/mean": 0.5, "reward/max": 1.0, "logprob_gap/mean": 0.001,
}  # fmt: skip


def codes(*changes: dict[str, float]) -> list[str]:
    return [f.code for f in findings([{**FINE, **c} for c in changes], 8, 6)]


def test_a_healthy_run_has_none() -> None:
    assert codes({}, {}, {}) == []
    assert findings([], 8, 6) == []


def test_each_cause_is_found() -> None:
    assert codes({"groups/no_signal": 0.5}) == ["no_signal"]
    assert codes({"truncated": 0.41}) == ["truncated"]
    assert codes({"logprob_gap/mean": 0.3}) == ["apart"]
    fading = [{"entropy": value} for value in (1.0, 0.5, 0.2, 0.1, 0.01)]
    assert codes(*fading) == ["collapsed"]


def test_drift_is_told_once_by_its_nearest_cause() -> None:
    assert codes({"logprob_gap/mean": 0.15, "ess": 0.3, "clip/high": 0.4}) == ["apart"]
    assert codes({"ess": 0.3, "clip/high": 0.4, "ratio/max": 17.0}) == ["few_count"]
    assert codes({"clip/low": 0.12, "clip/high": 0.1}) == ["clipped"]
    assert codes({"clip/low": 0.05, "clip/high": 0.1, "ess": 0.6}) == []


def test_drift_is_a_matter_of_steps_and_not_of_one() -> None:
    assert codes({}, {}, {}, {}, {"logprob_gap/mean": 0.3}) == []
    assert codes({"logprob_gap/mean": 0.3}, {}, {"logprob_gap/mean": 0.3}) == ["apart"]


def test_masked_tokens_are_told_beside_it() -> None:
    assert codes({"masked": 0.2}) == ["masked"]
    assert codes({"masked": 0.2, "ess": 0.2}) == ["few_count", "masked"]


def test_entropy_that_doubles_for_nothing() -> None:
    wild = [{"entropy": 1.0, "reward/mean": 0.5}] * 5 + [{"entropy": 2.4, "reward/mean": 0.4}] * 5
    assert codes(*wild) == ["scattered"]
    better = [{**step, "reward/mean": 0.4 + n / 10} for n, step in enumerate(wild)]
    assert codes(*better) == []
    assert codes(*wild[:7]) == []


def test_each_shows_its_figures_and_what_to_try() -> None:
    last = {**FINE, "ess": 0.31, "ratio/max": 23.0, "masked": 0.2}
    found = findings([last], 8, 6)
    assert "31 %" in found[0].words
    assert "23 times" in found[0].words
    for finding in found:
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


def blamed(*trajectories: Trajectory) -> list[Finding]:
    return findings([FINE], 8, 6, unscored_causes(trajectories))


def test_unscored_rollouts_are_explained_by_their_own_reasons() -> None:
    budget = failed("judge.budget", 40, "The judge's budget is used up.", "Raise budget_usd.")
    found = blamed(*failed("agent.crashed", 9, "The agent raised KeyError."), *budget)
    assert [one.code for one in found] == ["unscored", "unscored_too"]
    assert found[0].title == "40 of 64 rollouts are unscored."
    assert "agent is not the cause. The judge's budget is used up." in found[0].words
    assert found[0].suggestion == "Raise budget_usd."
    assert "The agent failed. The agent raised KeyError." in found[1].words
    assert found[1].suggestion
    for code, words in (
        ("judge.unreachable", "not the cause"),
        ("gateway.bad_message", "request of the agent was rejected"),
        ("reward.missing", "gave no reward"),
        ("policy.died", "rollout itself failed"),
    ):
        assert words in blamed(*failed(code, 20))[0].words


def test_a_few_unscored_rollouts_and_those_a_person_took_out_are_no_finding() -> None:
    assert blamed(*failed("agent.crashed", 6)) == []
    assert blamed(*failed("label.excluded", 64)) == []


def test_truncated_rollouts_are_explained_by_the_limit_that_cut_them() -> None:
    def words(limit: int, **shares: float) -> str:
        return findings([FINE | {"truncated": 0.5} | shares], 8, limit)[0].words

    assert "64 tokens (train.max_tokens)" in words(64, **{"truncated/max_tokens": 0.5})
    assert "agent's own requests" in words(
        64, **{"truncated/agent": 0.4, "truncated/max_tokens": 0.1}
    )
    assert "model.max_context" in words(64, **{"truncated/context": 0.5})
    assert "agent's own requests" in words(0)


def test_it_goes_away_with_its_cause() -> None:
    assert codes({"truncated": 0.9}, {"truncated": 0.0}) == []


def test_at_most_three() -> None:
    everything = {"masked": 0.9, "groups/no_signal": 1, "truncated": 1, "logprob_gap/mean": 1}
    assert len(codes(everything)) == 3


def test_what_pleases_only_the_judge_is_told_with_its_evidence() -> None:
    assert codes({"watch/addresses_judge": 2 / 64}) == ["addressed"]
    assert codes({"judge/canaries": 0.0}, {}) == ["fooled"]
    assert codes({"judge/canaries": 0.0}, {"judge/canaries": 1.0}) == []
    turning = [
        {"reward/part/ruler": 0.4 + 0.04 * n, "reward/part/rules": 0.6 - 0.02 * n}
        for n in range(12)
    ]
    assert codes(*turning) == ["pleasing"]
    together = [
        {"reward/part/ruler": 0.4 + 0.04 * n, "reward/part/rules": 0.5 + 0.02 * n}
        for n in range(12)
    ]
    assert codes(*together) == []
    growing = [
        {"reward/part/ruler": 0.4 + 0.02 * n, "tokens/completion_mean": 50.0 + 10 * n}
        for n in range(12)
    ]
    assert codes(*growing) == ["padding"]
