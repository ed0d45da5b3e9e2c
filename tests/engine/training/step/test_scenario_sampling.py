"""The scenarios of a step follow from seed and step."""

from engine.protocol.records.runs import Scenario
from engine.training.step.scenario_sampling import Choice, choose, choose_further

SCENARIOS = [Scenario(id=f"s{n}", title="", data={}) for n in range(6)]


def test_an_epoch_takes_every_scenario_once() -> None:
    taken = [s.id for step in (1, 2, 3) for s in choose(Choice(SCENARIOS, 0, step), 2)]
    assert sorted(taken) == [f"s{n}" for n in range(6)]
    assert choose(Choice(SCENARIOS, 0, 2), 2) == choose(Choice(SCENARIOS, 0, 2), 2)


def test_further_ones_are_new_while_there_are_any() -> None:
    chosen = choose(Choice(SCENARIOS, 0, 1), 4)
    more = choose_further(Choice(SCENARIOS, 0, 1), chosen, 5)
    assert len({s.id for s in [*chosen, *more[:2]]}) == 6
    assert len({s.id for s in more[2:]}) == 3
    first = choose_further(Choice(SCENARIOS, 0, 1), chosen, 2)
    assert first + choose_further(Choice(SCENARIOS, 0, 1), [*chosen, *first], 3) == more
    assert choose_further(Choice(SCENARIOS, 0, 2), chosen, 5) != more
