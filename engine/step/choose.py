"""Which scenarios a step practises: all of it derived from seed and step. Pure."""

import random
from collections.abc import Sequence

from engine.protocol.records import Scenario
from engine.seeds import derive


def choose(scenarios: list[Scenario], seed: int, step: int, count: int) -> list[Scenario]:
    """The scenarios of a step: a fresh shuffle per epoch, all of it derived from seed and step."""
    chosen = []
    for position in range((step - 1) * count, step * count):
        epoch, place = divmod(position, len(scenarios))
        order = random.Random(derive(seed, "order", epoch)).sample(
            range(len(scenarios)), len(scenarios)
        )
        chosen.append(scenarios[order[place]])
    return chosen


def further(
    scenarios: Sequence[Scenario], seed: int, step: int, chosen: Sequence[Scenario], count: int
) -> list[Scenario]:
    """`count` more after the `chosen` ones of a step, those first that are not among them; a file
    that is too small begins again."""
    order = random.Random(derive(seed, "refill", step)).sample(scenarios, len(scenarios))
    times = [sum(one.id == scenario.id for one in chosen) for scenario in order]
    found = []
    for _ in range(count):
        place = times.index(min(times))
        times[place] += 1
        found.append(order[place])
    return found
