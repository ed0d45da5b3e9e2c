"""Scenario sampling is determined by seed and step."""

from engine.protocol.records.runs import Scenario
from engine.training.step.scenario_sampling import Choice, choose, choose_further

SCENARIOS = [Scenario(id=f"s{n}", title="", data={}) for n in range(6)]


def test_epoch_takes_every_scenario_once() -> None:
    drawn = [s.id for step in (1, 2, 3) for s in choose(Choice(SCENARIOS, 0, step), 2)]
    assert sorted(drawn) == [f"s{n}" for n in range(6)]
    assert choose(Choice(SCENARIOS, 0, 2), 2) == choose(Choice(SCENARIOS, 0, 2), 2)


def test_further_scenarios_are_new_while_any_remain() -> None:
    chosen = choose(Choice(SCENARIOS, 0, 1), 4)
    more = choose_further(Choice(SCENARIOS, 0, 1), chosen, 5)
    assert len({s.id for s in [*chosen, *more[:2]]}) == 6
    assert len({s.id for s in more[2:]}) == 3
    first = choose_further(Choice(SCENARIOS, 0, 1), chosen, 2)
    assert first + choose_further(Choice(SCENARIOS, 0, 1), [*chosen, *first], 3) == more
    assert choose_further(Choice(SCENARIOS, 0, 2), chosen, 5) != more


WEIGHTS = [0.3, 0.25, 0.2, 0.15, 0.1, 0.0]


def names(chosen: list[Scenario]) -> str:
    return " ".join(one.id for one in chosen)


def test_seed_fixes_the_order_of_all_steps() -> None:
    """A step that is repeated, even after an app update, takes the same scenarios."""
    assert [names(choose(Choice(SCENARIOS, 0, step), 4)) for step in (1, 2, 3, 4)] == [
        "s4 s2 s3 s1", "s0 s5 s1 s5", "s3 s0 s4 s2", "s3 s2 s1 s4",
    ]  # fmt: skip
    assert names(choose(Choice(SCENARIOS, 1, 1), 4)) == "s1 s0 s4 s2"


def test_seed_fixes_the_weighted_order_of_each_step() -> None:
    """Weight 0 comes last; a step larger than the file starts over."""
    assert names(choose(Choice(SCENARIOS, 0, 1, WEIGHTS), 8)) == "s0 s2 s4 s1 s3 s5 s0 s2"
    assert names(choose(Choice(SCENARIOS, 0, 2, WEIGHTS), 8)) == "s0 s1 s4 s3 s2 s5 s0 s1"


def test_seed_fixes_the_order_of_further_scenarios() -> None:
    first = SCENARIOS[:2]
    assert names(choose_further(Choice(SCENARIOS, 0, 1), first, 6)) == "s4 s3 s5 s2 s0 s4"
    weighted = choose_further(Choice(SCENARIOS, 0, 1, WEIGHTS), first, 6)
    assert names(weighted) == "s2 s3 s4 s5 s0 s1"


def test_further_scenarios_are_those_drawn_least_often() -> None:
    one, two, three = SCENARIOS[:3]
    more = choose_further(Choice([one, two, three], 0, 1), [one, one, two], 5)
    assert more[0] == three
    assert sorted(names(more[:3]).split()) == ["s1", "s2", "s2"]
    drawn = sorted(names([one, one, two, *more]).split())
    assert [drawn.count(name) for name in ("s0", "s1", "s2")] in ([3, 3, 2], [3, 2, 3], [2, 3, 3])
