"""Which of two inputs say the same in other words, and who is for practice and who for the test.
Pure.

Two inputs are near duplicates where their sets of three-word shingles overlap by half (Jaccard),
case and punctuation aside: what an LLM that is asked for many writes again.
"""

import random
import re
from collections.abc import Sequence

from engine.protocol.authoring import DraftScenario
from engine.seeds import derive

SHINGLE = 3
ALIKE = 0.5
HELD_OUT = 0.2
LEAST_HELD_OUT = 2


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Of its words; a short text is one shingle."""
    words = re.findall(r"\w+", text.casefold())
    count = max(1, len(words) - SHINGLE + 1)
    return frozenset(tuple(words[n : n + SHINGLE]) for n in range(count))


def alike(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> bool:
    together = len(one | other)
    return bool(together) and len(one & other) / together >= ALIKE


def without_likes(
    kept: Sequence[DraftScenario], new: Sequence[DraftScenario]
) -> list[DraftScenario]:
    """Those of the new ones that are like none before them."""
    known = [shingles(one.input) for one in kept]
    found = []
    for one in new:
        mine = shingles(one.input)
        if not any(alike(mine, other) for other in known):
            known.append(mine)
            found.append(one)
    return found


def split(scenarios: Sequence[DraftScenario], seed: int) -> list[DraftScenario]:
    """In the same order, a fifth of each difficulty (two in all, at least) for validation."""
    by_difficulty: dict[int, list[int]] = {}
    for place, one in enumerate(scenarios):
        by_difficulty.setdefault(one.difficulty or 0, []).append(place)
    draw = random.Random(derive(seed, "held out"))
    order = [draw.sample(places, len(places)) for _, places in sorted(by_difficulty.items())]
    wanted = max(LEAST_HELD_OUT, round(HELD_OUT * len(scenarios)))
    rows = range(len(scenarios))
    turns = [place for row in rows for places in order for place in places[row : row + 1]]
    held_out = set(turns[:wanted])
    return [
        one.model_copy(update={"split": "validation" if place in held_out else "train"})
        for place, one in enumerate(scenarios)
    ]
