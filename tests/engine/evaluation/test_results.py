"""Evaluation standings from stored rollouts: what counts, what is left out, cost."""

import pytest

from engine.evaluation.comparison import compare
from engine.evaluation.results import (
    Attempts,
    covered_seconds,
    quantile,
    result_of,
    scenarios_by_tag,
)
from engine.protocol.records.comparison import EvaluationResult, Standing, TagStandings
from engine.protocol.records.runs import Scenario, TrajectorySummary
from engine.protocol.requests.evaluation import Contestant, EvaluationPlan, SystemPrompt
from engine.reward.advantage.group import interval

BASE = Contestant(name="base", kind="base", model="m")
OTHER = Contestant(name="openai/x", kind="provider", model="openai/x")
TAGS: list[dict[str, object]] = [{"tag": "easy"}, {"tags": ["hard", "long"]}, {"tag": "easy"}, {}]


def scenarios() -> list[Scenario]:
    return [Scenario(id=f"s{n}", title=f"s{n}", data=data) for n, data in enumerate(TAGS)]


def row(contestant: str, scenario: int, index: int, reward: float | None, **more: object):  # type: ignore[no-untyped-def]
    return TrajectorySummary(
        id=f"{contestant}-{scenario}-{index}",
        split="validation",
        step=0,
        group=scenario,
        index=index,
        scenario_id=f"s{scenario}",
        title="",
        reward=reward,
        contestant=contestant,
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


def test_means_are_per_scenario_and_unscored_is_not_zero() -> None:
    rows = [
        row("base", 0, 0, 1.0), row("base", 0, 1, 0.0), row("base", 1, 0, 1.0),
        row("base", 1, 1, None), row("openai/x", 0, 2, 1.0, cost_usd=0.5),
        row("openai/x", 1, 2, None, cost_usd=0.25), row("openai/x", 2, 2, None, awaits_judge=True),
    ]  # fmt: skip
    result_ = result(rows)
    base, other = result_.standings
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
    assert (result_.done, result_.total, result_.scenarios) == (7, 16, 4)


def test_nothing_scored_gives_no_rewards() -> None:
    result_ = result([row("base", 0, 0, None)])
    assert not result_.scored
    assert [one.reward for one in result_.standings] == [None, None]


def test_tags_have_their_own_standings() -> None:
    assert scenarios_by_tag(scenarios()) == {"easy": {"s0", "s2"}, "hard": {"s1"}, "long": {"s1"}}
    rows = [row("base", n, 0, float(n)) for n in range(4)]
    result_ = result(rows)
    assert [(tag.tag, tag.scenarios) for tag in result_.tags] == [
        ("easy", 2),
        ("hard", 1),
        ("long", 1),
    ]
    easy = result_.tags[0].standings[0].reward
    assert easy is not None
    assert (easy.mean, easy.count) == (1.0, 2)


def test_variants_are_pooled_and_compared_with_their_counterpart() -> None:
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
    result_ = result(rows, plan)
    base, other = result_.standings
    assert base.reward is not None
    assert base.reward.mean == 0.5
    assert other.versus is not None
    assert other.versus.difference is not None
    assert other.versus.difference.mean == 0.5  # only the variant scored for both: short
    against = [(one.variant, one.versus.against if one.versus else "") for one in result_.variants]
    assert against == [
        ("short", ""), ("long", "base · short"), ("short", "base · short"), ("long", "base · long"),
    ]  # fmt: skip


def test_overlapping_time_is_counted_once_in_the_cost() -> None:
    assert covered_seconds([(0, 10), (5, 12), (20, 21)]) == 13
    assert covered_seconds([]) == 0
    rows = [row("base", 0, n, 1.0) for n in range(2)]
    spans = {rows[0].id: (0.0, 1800.0), rows[1].id: (900.0, 3600.0)}
    assert result(rows, spans=spans, rate=4.0).standings[0].usd_per_1000 == pytest.approx(2000)


def test_quantile_interpolates_linearly() -> None:
    assert quantile([1.0], 0.9) == 1.0
    assert quantile([0.0, 10.0], 0.9) == 9.0
    assert quantile([0.0, 10.0, 40.0], 0.75) == 25.0
    assert quantile([0.0, 10.0, 40.0], 0.25) == 5.0
    assert quantile([0.0, 10.0, 40.0], 0.5) == 10.0
    assert quantile([0.0, 10.0, 40.0], 1.0) == 40.0


def timed_row(
    contestant: str, scenario: int, reward: float | None, seconds: float, tokens: int, **more
):  # type: ignore[no-untyped-def]
    timed_ = row(contestant, scenario, 0, reward, sampled_tokens=tokens, **more)
    return timed_.model_copy(update={"duration_s": seconds})


def test_result_contains_all_standings_tags_and_settings() -> None:
    rows = [
        timed_row("base", 0, 0.25, 4.0, 10),
        timed_row("base", 1, 0.75, 2.0, 20),
        timed_row("base", 3, None, 12.0, 60),
        timed_row("openai/x", 0, 0.75, 1.0, 5, cost_usd=0.125),
        timed_row("openai/x", 1, 0.5, 3.0, 5),
    ]
    spans = {rows[0].id: (0.0, 3600.0), rows[1].id: (3600.0, 5400.0)}
    plan = EvaluationPlan(
        contestants=[BASE, OTHER], attempts=2, scenarios=4, source="validation", seed=3
    )
    result_ = result_of(plan, scenarios(), Attempts(rows, spans, 2.0), True, "bfloat16")
    base = result_.standings[0]
    assert (base.name, base.kind, base.variant, base.versus) == ("base", "base", "", None)
    assert (base.attempts, base.unscored, base.reward) == (3, 1, interval([0.25, 0.75]))
    assert (base.latency_median_s, base.tokens_mean, base.usd_per_1000) == (4.0, 30.0, 1000.0)
    assert base.latency_p90_s == pytest.approx(10.4)
    assert result_.standings[1] == Standing(
        name="openai/x", kind="provider", attempts=2, unscored=0, reward=interval([0.75, 0.5]),
        latency_median_s=2.0, latency_p90_s=2.8, tokens_mean=5.0, usd_per_1000=62.5,
        versus=compare({"s0": 0.75, "s1": 0.5}, {"s0": 0.25, "s1": 0.75}, "base"),
    )  # fmt: skip
    assert (result_.done, result_.total, result_.scenarios, result_.attempts) == (5, 16, 4, 2)
    assert (result_.seed, result_.judged, result_.precision) == (3, True, "bfloat16")
    assert result_.variants == []
    assert [tag.tag for tag in result_.tags] == ["easy", "hard", "long"]
    hard = result_.tags[1]
    assert hard == TagStandings(tag="hard", scenarios=1, standings=hard.standings)
    assert [one.reward for one in hard.standings] == [interval([0.75]), interval([0.5])]
    assert [one.attempts for one in hard.standings] == [1, 1]
    easy = result_.tags[0].standings[1].versus
    assert easy == compare({"s0": 0.75}, {"s0": 0.25}, "base")


def test_contestant_without_rollouts_has_no_figures() -> None:
    assert result([], rate=2.0).standings[1] == Standing(
        name="openai/x", kind="provider", attempts=0, unscored=0, reward=None,
        latency_median_s=None, latency_p90_s=None, tokens_mean=None, usd_per_1000=None,
        versus=compare({}, {}, "base"),
    )  # fmt: skip


def test_rollouts_awaiting_the_judge_are_not_unscored() -> None:
    result_ = result([row("base", 0, 0, None, awaits_judge=True), row("base", 1, 0, None)])
    assert (result_.standings[0].attempts, result_.standings[0].unscored) == (2, 1)


def test_rollouts_without_a_time_cost_nothing() -> None:
    rows = [row("base", 0, n, 1.0) for n in range(2)]
    assert result(rows, spans={rows[0].id: (0.0, 360.0)}, rate=10.0).standings[
        0
    ].usd_per_1000 == pytest.approx(500)
    assert result(rows, spans={}, rate=10.0).standings[0].usd_per_1000 == 0


def test_variant_standings_are_compared_with_their_counterpart() -> None:
    variants = [SystemPrompt(name="short", text="s"), SystemPrompt(name="long", text="l")]
    plan = EvaluationPlan(
        contestants=[BASE, OTHER], variants=variants, attempts=1, scenarios=4,
        source="validation", seed=0,
    )  # fmt: skip
    rows = [
        row("base · short", 0, 0, 0.0), row("base · long", 0, 1, 1.0),
        row("openai/x · short", 0, 2, 0.5), row("openai/x · long", 0, 3, 0.75),
        row("openai/x · long", 1, 3, 0.25),
    ]  # fmt: skip
    result_ = result(rows, plan)
    standings = [(one.name, one.kind, one.variant, one.attempts) for one in result_.variants]
    assert standings == [
        ("base", "base", "short", 1), ("base", "base", "long", 1),
        ("openai/x", "provider", "short", 1), ("openai/x", "provider", "long", 2),
    ]  # fmt: skip
    differences = [one.versus.difference for one in result_.variants if one.versus]
    assert [one.mean for one in differences if one] == [1.0, 0.5, -0.25]
    assert [one.reward.mean for one in result_.variants if one.reward] == [0.0, 1.0, 0.5, 0.5]
    pooled = result_.standings[1]
    assert pooled.reward is not None
    assert (pooled.reward.mean, pooled.reward.count, pooled.attempts) == ((0.625 + 0.25) / 2, 2, 3)


@pytest.mark.parametrize(
    ("data", "tags"),
    [
        ({"tag": " a "}, {"a"}),
        ({"tag": 7}, {"7"}),
        ({"tags": "b"}, {"b"}),
        ({"tag": "a", "tags": ["b", 3, None, [], " "]}, {"a", "b", "3"}),
        ({"tag": 1.5, "tags": {"x": 1}}, set()),
        ({}, set()),
    ],
)
def test_tags_are_texts_or_numbers(data: dict[str, object], tags: set[str]) -> None:
    result_ = scenarios_by_tag([Scenario(id="s", title="", data=data)])
    assert result_ == {tag: {"s"} for tag in tags}


def test_tags_are_sorted_by_scenario_count_and_name() -> None:
    timed_ = [
        Scenario(id=f"s{n}", title="", data={"tags": tags})
        for n, tags in enumerate((["z", "b", "a"], ["z", "c"]))
    ]
    plan = EvaluationPlan(contestants=[BASE], attempts=1, scenarios=2, source="validation", seed=0)
    result_ = result_of(plan, timed_, Attempts([], {}, None), judged=False)
    assert [(one.tag, one.scenarios) for one in result_.tags] == [
        ("z", 2), ("a", 1), ("b", 1), ("c", 1)
    ]  # fmt: skip
    assert result_.precision == ""


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([(0, 10), (2, 3), (4, 10.5)], 10.5),
        ([(5, 7)], 2),
        ([(5, 12), (0, 10)], 12),
        ([(0, 10), (2, 3), (4, 11)], 11),
        ([(0, 1), (1, 2)], 2),
        ([(-5, -3)], 2),
    ],
)
def test_covered_seconds_counts_overlaps_once(
    spans: list[tuple[float, float]], seconds: float
) -> None:
    assert covered_seconds(spans) == seconds
