"""Stored attempts → standings: what counts, what is left out, what it costs."""

import pytest

from engine.evaluation.results import (
    Attempts,
    covered_seconds,
    quantile,
    result_of,
    scenarios_by_tag,
)
from engine.protocol.records.comparison import EvaluationResult
from engine.protocol.records.runs import Scenario, TrajectorySummary
from engine.protocol.requests.evaluation import Contestant, EvaluationPlan, SystemPrompt

BASE = Contestant(name="base", kind="base", model="m")
OTHER = Contestant(name="openai/x", kind="provider", model="openai/x")
TAGS: list[dict[str, object]] = [{"tag": "easy"}, {"tags": ["hard", "long"]}, {"tag": "easy"}, {}]


def scenarios() -> list[Scenario]:
    return [Scenario(id=f"s{n}", title=f"s{n}", data=data) for n, data in enumerate(TAGS)]


def row(who: str, scenario: int, index: int, reward: float | None, **more: object):  # type: ignore[no-untyped-def]
    return TrajectorySummary(
        id=f"{who}-{scenario}-{index}",
        split="validation",
        step=0,
        group=scenario,
        index=index,
        scenario_id=f"s{scenario}",
        title="",
        reward=reward,
        contestant=who,
        duration_s=2.0,
        **more,  # type: ignore[arg-type]
    )


def result(
    rows: list[TrajectorySummary],
    plan: EvaluationPlan | None = None,
    spans: dict[str, tuple[float, float]] | None = None,
    rate: float | None = None,
) -> EvaluationResult:
    plan = plan or EvaluationPlan(
        contestants=[BASE, OTHER], attempts=2, scenarios=4, source="validation", seed=3
    )
    return result_of(plan, scenarios(), Attempts(rows, spans or {}, rate), judged=False)


def test_means_are_over_scenarios_and_unscored_is_no_zero() -> None:
    rows = [
        row("base", 0, 0, 1.0), row("base", 0, 1, 0.0), row("base", 1, 0, 1.0),
        row("base", 1, 1, None), row("openai/x", 0, 2, 1.0, cost_usd=0.5),
        row("openai/x", 1, 2, None, cost_usd=0.25), row("openai/x", 2, 2, None, awaits_judge=True),
    ]  # fmt: skip
    found = result(rows)
    base, other = found.standings
    assert base.reward is not None
    assert (base.reward.mean, base.reward.count) == (0.75, 2)
    assert (base.attempts, base.unscored, base.versus) == (4, 1, None)
    assert other.reward is not None
    assert (other.reward.mean, other.unscored, other.attempts) == (1.0, 1, 3)
    assert other.versus is not None
    assert other.versus.difference is not None
    assert (other.versus.difference.mean, other.versus.difference.count) == (0.5, 1)
    assert other.usd_per_1000 == pytest.approx(250)
    assert base.usd_per_1000 is None
    assert (found.done, found.total, found.scenarios) == (7, 16, 4)


def test_nothing_scored_is_none() -> None:
    found = result([row("base", 0, 0, None)])
    assert not found.scored
    assert [one.reward for one in found.standings] == [None, None]


def test_tags_stand_by_themselves() -> None:
    assert scenarios_by_tag(scenarios()) == {"easy": {"s0", "s2"}, "hard": {"s1"}, "long": {"s1"}}
    rows = [row("base", n, 0, float(n)) for n in range(4)]
    found = result(rows)
    assert [(tag.tag, tag.scenarios) for tag in found.tags] == [
        ("easy", 2),
        ("hard", 1),
        ("long", 1),
    ]
    easy = found.tags[0].standings[0].reward
    assert easy is not None
    assert (easy.mean, easy.count) == (1.0, 2)


def test_variants_are_siblings_and_compared_like_with_like() -> None:
    variants = [SystemPrompt(name="short", text="s"), SystemPrompt(name="long", text="l")]
    plan = EvaluationPlan(
        contestants=[BASE, OTHER], variants=variants, attempts=1, scenarios=4,
        source="validation", seed=0,
    )  # fmt: skip
    assert [entry.label for entry in plan.entries] == [
        "base · short", "base · long", "openai/x · short", "openai/x · long",
    ]  # fmt: skip
    rows = [
        row("base · short", 0, 0, 0.0), row("base · long", 0, 1, 1.0),
        row("openai/x · short", 0, 2, 0.5), row("openai/x · long", 0, 3, None),
    ]  # fmt: skip
    found = result(rows, plan)
    base, other = found.standings
    assert base.reward is not None
    assert base.reward.mean == 0.5
    assert other.versus is not None
    assert other.versus.difference is not None
    assert other.versus.difference.mean == 0.5  # only what is scored for both: short
    against = [(one.variant, one.versus.against if one.versus else "") for one in found.variants]
    assert against == [
        ("short", ""), ("long", "base · short"), ("short", "base · short"), ("long", "base · long"),
    ]  # fmt: skip


def test_time_on_this_machine_is_counted_once() -> None:
    assert covered_seconds([(0, 10), (5, 12), (20, 21)]) == 13
    assert covered_seconds([]) == 0
    rows = [row("base", 0, n, 1.0) for n in range(2)]
    spans = {rows[0].id: (0.0, 1800.0), rows[1].id: (900.0, 3600.0)}
    assert result(rows, spans=spans, rate=4.0).standings[0].usd_per_1000 == pytest.approx(2000)


def test_quantiles() -> None:
    assert quantile([1.0], 0.9) == 1.0
    assert quantile([0.0, 10.0], 0.9) == 9.0
