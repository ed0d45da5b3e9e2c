"""Cost of the judge in the preflight: unknown is not free."""

import pytest

from engine.protocol.records.forecast import JudgeForecast
from studio.pages.setup.preflight.panel import judge_cost


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(None, None, ""), (0.0, 0.0, "free"), (0.8, 2.1, "$0.80 to $2.10"), (1.0, 1.0, "$1.00")],
)
def test_cost_in_words(low: float | None, high: float | None, words: str) -> None:
    judge = JudgeForecast(
        calls_low=10, calls_high=20, validation_calls=2, usd_low=low, usd_high=high, budget_usd=5.0
    )
    assert judge_cost(judge) == words
