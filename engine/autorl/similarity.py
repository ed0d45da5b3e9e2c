"""Near duplicates of scenarios, and the split into training and validation. Pure.

Two inputs are near duplicates if their sets of three-word shingles overlap by half (Jaccard),
ignoring case and punctuation. An operator counts as a word, and so does each character of a script
without spaces between words.
"""

import random
import re
import unicodedata
from collections.abc import Sequence

from engine.protocol.requests.drafts import DraftScenario
from engine.runtime.seeds import derive

SHINGLE = 3
LONG = 12
"""Minimum length of a one-word text whose letters, instead of words, are compared."""
ALONE = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Myanmar, Khmer
    "\u3040-\u30ff"  # Hiragana, Katakana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
TOKENS = re.compile(rf"[{ALONE}]|[^\W{ALONE}]+|!=|[^\w\s]")
JOINED = re.compile(r"([^\W\d_]{2}\s*)[-/](?=\s*[^\W\d_]{2})")
"""Hyphen or slash between words (as in "follow-up"), which does not count as an operator."""
ALIKE = 0.5
HELD_OUT = 0.2
LEAST_HELD_OUT = 2


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Set of all sequences of three consecutive words in a text, to compare texts; a shorter text
    is one sequence. A single long word is split into its letters."""
    found = TOKENS.findall(JOINED.sub(r"\1 ", text.casefold()))
    words = [one for one in found if one[0].isalnum() or one[0] == "_" or _operates(one)]
    if len(words) == 1 and words[0].isalpha() and len(words[0]) >= LONG:
        words = list(words[0])
    count = max(1, len(words) - SHINGLE + 1)
    return frozenset(tuple(words[n : n + SHINGLE]) for n in range(count))


def _operates(sign: str) -> bool:
    """Whether a character such as + or % is a mathematical operator, which must not be ignored."""
    return sign == "!=" or sign in "-*/^%&" or unicodedata.category(sign) == "Sm"


def similarity(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> bool:
    together = len(one | other)
    return bool(together) and len(one & other) / together >= ALIKE


def without_duplicates(
    kept: Sequence[DraftScenario], new: Sequence[DraftScenario]
) -> list[DraftScenario]:
    """Return the `new` scenarios whose input is no near duplicate of the input of a `kept` scenario
    or of an earlier new one."""
    known = [shingles(one.input) for one in kept]
    found = []
    for one in new:
        mine = shingles(one.input)
        if not any(similarity(mine, other) for other in known):
            known.append(mine)
            found.append(one)
    return found


def split(scenarios: Sequence[DraftScenario], seed: int) -> list[DraftScenario]:
    """Assign a fifth of the scenarios of each difficulty to validation, at least two in all, and
    the others to training. `seed` decides the draw; the order stays."""
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
