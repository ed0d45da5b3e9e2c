"""Findings say a figure, its cause and one thing to try; they go away with their cause."""

from engine.diagnosis import findings

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
    assert codes({"unscored": 9}) == ["unscored"]
    assert codes({"groups/no_signal": 0.5}) == ["no_signal"]
    assert codes({"truncated": 0.41}) == ["truncated"]
    assert codes({"logprob_gap/mean": 0.3}) == ["apart"]
    fading = [{"entropy": value} for value in (1.0, 0.5, 0.2, 0.1, 0.01)]
    assert codes(*fading) == ["collapsed"]


def test_it_goes_away_with_its_cause() -> None:
    assert codes({"unscored": 9}, {"unscored": 0}) == []


def test_at_most_three() -> None:
    everything = {"unscored": 60, "groups/no_signal": 1, "truncated": 1, "logprob_gap/mean": 1}
    assert len(codes(everything)) == 3
