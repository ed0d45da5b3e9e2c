"""Forecast of judge calls: groups, validations and canaries, by passes and models."""

from typing import Any

import pytest

from engine.judge.forecast import judge_forecast
from engine.protocol.config.project import JudgeConfig, ProjectConfig, TrainConfig

TRAIN = TrainConfig(steps=20, groups=4, validate_every=10)  # validations at 0, 10 and 20


def config(**judge: Any) -> ProjectConfig:
    given = {"enabled": True, "models": ("openai/a",), "passes": 3, "canary_every": 10, **judge}
    return ProjectConfig(train=TRAIN, judge=JudgeConfig(**given))


@pytest.mark.parametrize(
    ("judge", "low", "high"),
    [
        ({"passes": 1}, 80 + 2 * 5 + 2, 80 + 3 * 5 + 2),
        ({}, 160 + 2 * 2 * 5 + 2, 240 + 3 * 3 * 5 + 2),
        ({"models": ("openai/a", "openai/b")}, 2 * 182, 2 * 287),
        ({"prompt": "art"}, 92, 97),
        ({"local": True}, 20, 287),
        ({"canary_every": 0}, 180, 285),
    ],
)
def test_calls_of_a_run(judge: dict[str, Any], low: int, high: int) -> None:
    found = judge_forecast(config(**judge), 5, None)
    assert found is not None
    assert (found.calls_low, found.calls_high) == (low, high)
    assert (found.usd_low, found.usd_high) == (None, None)


def test_cost_follows_the_mean_cost_of_a_call() -> None:
    found = judge_forecast(config(passes=1), 5, 0.01)
    assert found is not None
    assert found.usd_low == pytest.approx(0.92)
    assert found.validation_calls == 10


def test_run_without_judge_model_has_no_forecast() -> None:
    assert judge_forecast(ProjectConfig(), 5, 0.01) is None
    assert judge_forecast(config(models=(), local=True), 5, None) is None
