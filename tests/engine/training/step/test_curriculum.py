"""Scenario weights of each curriculum, from the rewards of earlier groups."""

import pytest

from engine.protocol.problems import ConfigError
from engine.protocol.records.runs import Scenario
from engine.training.step.curriculum import Visit, check, difficulty, scenario_weights
from engine.training.step.scenario_sampling import Choice, choose, choose_further

SCENARIOS = [Scenario(id=name, title="", data={}) for name in ("solved", "half", "never", "new")]
VISITS = [
    Visit(step, name, rewards)
    for step in (1, 2, 3)
    for name, rewards in (
        ("solved", (1.0, 1.0, 1.0, 1.0)),
        ("half", (1.0, 0.0, 1.0, 0.0)),
        ("never", (0.0, 0.0, 0.0, 0.0)),
    )
]


def weights(kind: str, visits: list[Visit] = VISITS, floor: float = 0.0) -> dict[str, float]:
    result = scenario_weights(kind, SCENARIOS, visits, 0.0, floor)  # type: ignore[arg-type]
    return {one.id: weight for one, weight in zip(SCENARIOS, result, strict=True)}


def test_frontier_weights_by_variance_and_favours_unseen_scenarios() -> None:
    result = weights("frontier")
    assert result["new"] == result["half"]  # the greatest variance there is: p(1 - p) at p = 1/2
    # 12 rollouts without spread beside a prior of 2 at the greatest variance
    assert result["never"] == result["solved"] == pytest.approx(result["half"] * 2 / 14)
    assert sum(result.values()) == pytest.approx(1)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-40.0, 3.0), (0.5, 0.52)])
def test_frontier_is_invariant_to_reward_scale(low: float, high: float) -> None:
    visits = [
        visit._replace(rewards=tuple(low + (high - low) * r for r in visit.rewards))
        for visit in VISITS
    ]
    assert weights("frontier", visits) == pytest.approx(weights("frontier"))


def test_hard_weights_by_failure_share() -> None:
    result = weights("hard")
    # p with a prior of one solved among two: 13/14, 7/14, 1/14; 1/2 where nothing is known
    total = 1 / 14 + 7 / 14 + 13 / 14 + 1 / 2
    expected = {"solved": 1 / 14, "half": 7 / 14, "never": 13 / 14, "new": 1 / 2}
    assert result == pytest.approx({name: share / total for name, share in expected.items()})


@pytest.mark.parametrize(
    ("rewards", "failing"),
    [
        ({"solved": 3.0, "half": 1.0, "never": -1.0}, {"solved": 0.25, "half": 0.5, "never": 0.75}),
        ({"solved": 1.0, "half": 0.5}, {"solved": 0.25, "half": 0.5, "never": 0.5}),
        ({"solved": 4.0, "half": 2.0}, {"solved": 0.25, "half": 0.5, "never": 0.5}),
    ],
)
def test_hard_normalises_rewards_to_the_observed_range(
    rewards: dict[str, float], failing: dict[str, float]
) -> None:
    """Two rewards per scenario on a scale of at least 0 to 1; the prior is 1 solved of 2."""
    visits = [Visit(1, name, (reward, reward)) for name, reward in rewards.items()]
    expected = failing | {"new": 0.5}
    total = sum(expected.values())
    assert weights("hard", visits) == pytest.approx({n: w / total for n, w in expected.items()})


def test_only_the_latest_visits_count() -> None:
    later = [Visit(step, "never", (1.0, 1.0)) for step in (4, 5, 6, 7)]
    result = weights("hard", VISITS + later)
    assert result["never"] < result["half"]


def test_visit_without_scored_rollouts_changes_nothing() -> None:
    assert weights("hard", [*VISITS, Visit(4, "new", ())]) == weights("hard")


def test_floor_keeps_every_scenario_possible() -> None:
    assert min(weights("frontier", floor=0.2).values()) >= 0.2 / 4
    assert weights("hard", floor=1.0) == pytest.approx(dict.fromkeys(weights("hard"), 0.25))


def test_easy_first_opens_from_the_easiest_to_all() -> None:
    scenarios = [Scenario(id=f"s{n}", title="", data={"difficulty": n % 4}) for n in range(8)]

    def open_at(progress: float) -> set[int]:
        result = scenario_weights("easy_first", scenarios, [], progress, 0.0)
        return {n % 4 for n, weight in enumerate(result) if weight}

    assert [open_at(p) for p in (0, 0.2, 0.4, 0.5, 1, 2)] == [
        {0}, {0, 1, 2}, {0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}
    ]  # fmt: skip


def test_easy_first_measures_difficulty_when_not_given() -> None:
    """Solved scenarios first, never failing ones, while only the easiest quarter is open."""
    result = weights("easy_first")
    assert result["solved"] == 1
    mixed = [*SCENARIOS, Scenario(id="rated", title="", data={"difficulty": 3})]
    assert len(scenario_weights("easy_first", mixed, VISITS, 1.0, 0.0)) == 5


def open_indices(difficulties: list[float | None], progress: float) -> list[int]:
    """Indices of the scenarios that `easy_first` draws from."""
    scenarios_ = [
        Scenario(id=f"s{n}", title="", data={} if value is None else {"difficulty": value})
        for n, value in enumerate(difficulties)
    ]
    result = scenario_weights("easy_first", scenarios_, [], progress, 0.0)
    return [n for n, weight in enumerate(result) if weight]


@pytest.mark.parametrize(
    ("difficulties", "progress", "indices"),
    [
        ([3, 1, None], 0.0, [1]),
        ([3, 1, None], 0.25, [1, 2]),
        ([2, None], 0.0, [0, 1]),
        ([2.5, -1, 0, None], 1 / 6, [1, 2, 3]),
        ([1, 1, 9, None], 0.0, [0, 1]),
        ([1, 1, 9, None], 1 / 3, [0, 1, 3]),
        (list(range(8)), 0.0, [0, 1]),
        (list(range(8)), 0.2, [0, 1, 2, 3, 4]),
        (list(range(8)), 0.5, list(range(8))),
    ],
)
def test_easy_first_goes_by_rank_with_unknown_in_the_middle(
    difficulties: list[float | None], progress: float, indices: list[int]
) -> None:
    assert open_indices(difficulties, progress) == indices


def test_easy_first_ranks_measured_scenarios_separately() -> None:
    """The harder of two measured scenarios ranks behind those without a visit."""
    visits = [visit for visit in VISITS if visit.scenario_id in ("solved", "half")]
    result = scenario_weights("easy_first", SCENARIOS, visits, 1 / 6, 0.0)
    assert result == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3])
    scenarios_ = [*SCENARIOS[:2], Scenario(id="never", title="", data={"difficulty": 9})]
    result = scenario_weights("easy_first", scenarios_, VISITS, 1 / 6, 0.0)
    assert result == pytest.approx([1 / 2, 0, 1 / 2])


def test_frontier_variance_is_independent_of_group_size() -> None:
    visits = [Visit(1, "half", (1.0, 0.0)), Visit(1, "solved", (1.0, 0.0, 1.0, 0.0))]
    assert weights("frontier", visits) == dict.fromkeys(weights("frontier"), 0.25)


@pytest.mark.parametrize("kind", ["frontier", "hard", "easy_first"])
def test_weights_are_uniform_before_the_first_step(kind: str) -> None:
    assert weights(kind, []) == dict.fromkeys(weights(kind), 0.25)


def test_removed_scenario_is_ignored() -> None:
    assert weights("hard", [*VISITS, Visit(1, "gone", (1.0, 1.0))]) == weights("hard")


@pytest.mark.parametrize("value", ["hard", True, float("nan"), [1]])
def test_non_numeric_difficulty_raises_config_error(value: object) -> None:
    bad = [Scenario(id="s7", title="", data={"difficulty": value})]
    with pytest.raises(ConfigError, match="The difficulty of scenario s7 is not a number") as error:
        check("easy_first", bad)
    problem = error.value.problem
    assert (problem.code, problem.where) == ("scenarios.bad_difficulty", "scenario s7")
    assert (problem.hint or "").startswith('Write "difficulty": 2.5, where higher is harder;')
    for kind in ("frontier", "hard", "uniform"):
        check(kind, bad)


@pytest.mark.parametrize(("data", "value"), [({}, None), ({"difficulty": 2}, 2.0)])
def test_missing_difficulty_is_none(data: dict[str, object], value: float | None) -> None:
    assert difficulty(Scenario(id="s", title="", data=data)) == value


def test_choose_follows_weights_without_replacement() -> None:
    """First scenarios drawn over many steps are distributed as the weights."""
    shares = [0.5, 0.3, 0.2, 0.0]
    firsts = []
    for step in range(4000):
        drawn = choose(Choice(SCENARIOS, 0, step, shares), 6)
        assert {one.id for one in drawn[:4]} == {one.id for one in SCENARIOS}
        assert drawn[3].id == "new"  # weight 0 comes last
        assert drawn[4:] == drawn[:2]
        firsts.append(drawn[0].id)
    frequencies = [firsts.count(one.id) / 4000 for one in SCENARIOS]
    assert frequencies == pytest.approx(shares, abs=0.03)


def test_weighted_choice_is_deterministic_in_seed_and_step() -> None:
    choice = Choice(SCENARIOS, 3, 5, [0.4, 0.3, 0.2, 0.1])
    assert choose(choice, 3) == choose(choice, 3)
    assert any(choose(choice, 3) != choose(choice._replace(step=n), 3) for n in range(6, 10))
    chosen = choose(choice, 2)
    assert {one.id for one in choose_further(choice, chosen, 2)}.isdisjoint(
        one.id for one in chosen
    )
