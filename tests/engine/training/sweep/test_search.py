"""Search over settings: the same proposals after a restart at any point, and importance."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol.config.sweep import Range
from engine.protocol.records.sweeps import Space, Values
from engine.training.sweep.search import Outcome, combinations, importance, listed, propose

LR = Range(low=1e-5, high=1e-2, log=True)
SPACE: Space = {
    "train.lr": LR,
    "train.groups": (4, 8, 16),
    "model.rank": Range(low=4, high=64, step=4),
}


def score(values: Values) -> float:
    """Planted objective: best at a learning rate of 1e-3; the rank has a small effect."""
    lr, rank = float(values["train.lr"]), float(values["model.rank"])
    return -((math.log10(lr) + 3) ** 2) - 0.001 * rank


def run_search(method: str, trials: int, seed: int = 7) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for _ in range(trials):
        values = propose(SPACE, method, seed, outcomes)  # type: ignore[arg-type]
        assert values is not None
        outcomes.append(Outcome(values, "finished", score(values)))
    return outcomes


@pytest.mark.parametrize("method", ["random", "tpe"])
def test_proposals_are_the_same_after_a_restart_at_every_point(method: str) -> None:
    outcomes = run_search(method, 14)
    for done in range(14):
        again = propose(SPACE, method, 7, outcomes[:done])  # type: ignore[arg-type]
        assert again == outcomes[done].values
    other = [one.values for one in run_search(method, 3, seed=8)]
    assert other != [one.values for one in outcomes[:3]]


def test_proposals_lie_in_the_space_and_differ() -> None:
    found = [one.values for one in run_search("tpe", 20)]
    for values in found:
        assert 1e-5 <= float(values["train.lr"]) <= 1e-2
        assert values["train.groups"] in (4, 8, 16)
        assert values["model.rank"] in range(4, 65, 4)
        assert isinstance(values["model.rank"], int)
    assert len({tuple(values.values()) for values in found}) == 20


def test_tpe_finds_a_better_value_than_random_search() -> None:
    """Median over ten seeds of the best of 30 trials."""

    def median(method: str) -> float:
        best = [max(score(o.values) for o in run_search(method, 30, seed)) for seed in range(10)]
        return sorted(best)[5]

    assert median("tpe") > median("random")


def test_pruned_and_failed_trials_are_tried_only_once() -> None:
    space: Space = {"train.groups": (4, 8), "train.algorithm.preset": ("grpo", "atelier")}
    outcomes: list[Outcome] = []
    states = ["pruned", "open", "finished", "finished"]
    for state in states:
        values = propose(space, "tpe", 0, outcomes)
        assert values is not None
        result = None if state == "open" else 0.5
        outcomes.append(Outcome(values, state, result, {2: 0.5} if state == "pruned" else {}))  # type: ignore[arg-type]
    assert len({tuple(one.values.values()) for one in outcomes}) == 4
    assert propose(space, "tpe", 0, outcomes) is None


def test_tpe_learns_from_pruned_trials() -> None:
    """Trials with a high learning rate were pruned: proposals avoid it."""
    space: Space = {"train.lr": LR}
    outcomes = [Outcome({"train.lr": 10**-e}, "finished", 1.0) for e in (4.8, 4.5, 4.2, 3.9)]
    outcomes += [Outcome({"train.lr": 10**-e}, "pruned", 0.1, {2: 0.1}) for e in (2.2, 2.4, 2.6)]
    found = [propose(space, "tpe", seed, outcomes) for seed in range(20)]
    low = sum(float(values["train.lr"]) < 10**-3.25 for values in found if values)
    assert low >= 14


def test_grid_lists_every_combination_in_order() -> None:
    space: Space = {"a": (1, 2), "b": ("x", "y"), "c": Range(low=0.1, high=0.3, step=0.1)}
    found = listed(space, "grid", 100, 0)
    assert combinations(space) == len(found) == 12
    assert found[0] == {"a": 1, "b": "x", "c": 0.1}
    assert [one["c"] for one in found[:3]] == [0.1, 0.2, 0.3]
    shuffled = listed(space, "grid", 100, 0, shuffled=True)
    assert shuffled != found
    assert sorted(map(str, shuffled)) == sorted(map(str, found))
    part = listed(space, "grid", 5, 3)
    assert len(part) == 5
    assert part == [one for one in found if one in part]
    assert part == listed(space, "grid", 5, 3) != listed(space, "grid", 5, 4)


def test_random_search_of_a_finite_space_repeats_nothing() -> None:
    space: Space = {"a": (1, 2), "b": Range(low=1, high=3)}
    found = listed(space, "random", 6, 0)
    assert sorted(tuple(one.values()) for one in found) == [
        (a, b) for a in (1, 2) for b in (1, 2, 3)
    ]
    assert listed(SPACE, "random", 6, 0) == []
    assert combinations(SPACE) is None


def test_importance_names_the_setting_that_decides() -> None:
    shares = importance(SPACE, run_search("random", 40))
    assert max(shares, key=lambda key: shares[key]) == "train.lr"
    assert shares["train.lr"] > 0.6
    assert sum(shares.values()) == pytest.approx(1)


@pytest.mark.parametrize("count", [0, 3])
def test_importance_needs_results(count: int) -> None:
    assert importance(SPACE, run_search("random", count)) == {}


def test_importance_needs_different_results_and_several_settings() -> None:
    equal = [Outcome(one.values, "finished", 0.5) for one in run_search("random", 6)]
    assert importance(SPACE, equal) == {}
    assert importance({"train.lr": LR}, run_search("random", 6)) == {}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.floats(-5, 5)), max_size=12), st.integers(0, 5))
def test_every_history_has_a_next_proposal(history: list[tuple[int, float]], seed: int) -> None:
    space: Space = {"n": Range(low=0, high=7), "m": ("x", "y")}
    outcomes = [
        Outcome({"n": n, "m": "x"}, ("finished", "pruned", "open")[n % 3], value, {1: value})  # type: ignore[arg-type]
        if n % 3
        else Outcome({"n": n, "m": "x"}, "finished", value)
        for n, value in history
    ]
    values = propose(space, "tpe", seed, outcomes)
    assert values is not None
    assert values not in [one.values for one in outcomes]
