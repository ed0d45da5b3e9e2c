"""Choice of the scenarios of a step, derived from seed, step and weights. Pure.

Without weights each epoch is shuffled anew; with them (`curriculum`) a step samples by weight.
"""

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

from engine.protocol.records.runs import Scenario
from engine.runtime.seeds import derive

Weights = Sequence[float]
"""Weights of the scenarios in file order: at least 0, not all 0."""


class Choice(NamedTuple):
    """Inputs that determine the choice of scenarios of one step."""

    scenarios: Sequence[Scenario]
    seed: int
    step: int
    weights: Weights | None = None


def choose(choice: Choice, count: int) -> list[Scenario]:
    """Return the `count` scenarios of a step. Without weights, the steps go through all scenarios
    in epochs, each shuffled anew. With weights, scenarios are drawn without replacement; if `count`
    exceeds their number, the drawn order repeats."""
    scenarios, seed, step, weights = choice
    if weights is not None:
        found = weighted_order(scenarios, weights, random.Random(derive(seed, "curriculum", step)))
        return [found[place % len(found)] for place in range(count)]
    chosen = []
    for position in range((step - 1) * count, step * count):
        epoch, place = divmod(position, len(scenarios))
        order = random.Random(derive(seed, "order", epoch)).sample(
            range(len(scenarios)), len(scenarios)
        )
        chosen.append(scenarios[order[place]])
    return chosen


def choose_further(choice: Choice, chosen: Sequence[Scenario], count: int) -> list[Scenario]:
    """Return `count` more scenarios for a step that has the scenarios `chosen`: those that occur
    least often in `chosen` first, equal ones in random order (with weights: in weighted order)."""
    scenarios, seed, step, weights = choice
    chance = random.Random(derive(seed, "refill", step))
    order = (
        chance.sample(scenarios, len(scenarios))
        if weights is None
        else weighted_order(scenarios, weights, chance)
    )
    times = [sum(one.id == scenario.id for one in chosen) for scenario in order]
    found = []
    for _ in range(count):
        place = times.index(min(times))
        times[place] += 1
        found.append(order[place])
    return found


def weighted_order(
    scenarios: Sequence[Scenario], weights: Weights, chance: random.Random
) -> list[Scenario]:
    """All scenarios in the order of a weighted sample without replacement: by falling log(u) / w
    with u uniform in (0, 1] (Efraimidis and Spirakis, Weighted random sampling with a reservoir,
    2006). Weight 0 comes last."""
    keys = [math.log(1.0 - chance.random()) for _ in scenarios]
    places = sorted(
        range(len(scenarios)),
        key=lambda place: (
            -(keys[place] / weights[place]) if weights[place] else math.inf,
            -keys[place],
        ),
    )
    return [scenarios[place] for place in places]
