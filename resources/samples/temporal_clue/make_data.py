"""Writes the scenarios and the demonstrations: `python make_data.py`, the same files every time.

Every case has one solution, and needs each of its clues: a clue is left out when the others say
enough. The demonstrations come from a mediocre detective: half of its answers are right, and the
others any that the question allows.
"""

import itertools
import json
import random
from pathlib import Path

from agent import ASKED, SYSTEM, questions
from puzzle import ORDER, VALUES, holds, solutions

HERE = Path(__file__).parent
LEVELS = {  # visits, and the kinds of clues, those that come first before the others
    "1 stated": (3, ("same",)),
    "2 linked": (3, ("same",)),
    "3 excluded": (3, ("not", "same")),
    "4 ordered": (4, ("hour_before", "before", "not", "same")),
}
TRAIN, VALIDATION = (96, 48, 16, 8), (64, 32, 16, 16)
DEMONSTRATIONS, RIGHT = 128, 0.5


def main():
    luck = random.Random(221)
    seen = set()
    (HERE / "scenarios").mkdir(exist_ok=True)
    train, validation = (
        [
            new_case(level, luck, seen)
            for level, n in zip(LEVELS, part, strict=True)
            for _ in range(n)
        ]
        for part in (TRAIN, VALIDATION)
    )
    luck.shuffle(train)
    write("scenarios/train.jsonl", numbered("t", train))
    write("scenarios/validation.jsonl", numbered("v", validation))
    shown = [new_case("1 stated", luck, seen) for _ in range(DEMONSTRATIONS)]
    write("demonstrations.jsonl", [demonstrate(case, luck) for case in shown])


def new_case(level, luck, seen):
    """One that was not made before."""
    while True:
        case = make_case(level, luck)
        text = questions(case)[0]
        if text not in seen:
            seen.add(text)
            return case


def make_case(level, luck):
    count, kinds = LEVELS[level]
    options = {role: sorted(luck.sample(values, count)) for role, values in VALUES.items()}
    start = luck.randint(0, len(VALUES["when"]) - count)
    options["when"] = list(VALUES["when"][start : start + count])
    visits = [
        list(visit)
        for visit in zip(*(luck.sample(v, count) for v in options.values()), strict=True)
    ]
    asked = luck.choice(visits)
    room = asked[ORDER.index("where")]
    clues = enough(options, in_order(level, true_clues(visits, kinds), room, luck))
    luck.shuffle(clues)
    return {
        "tag": f"level {level}",
        "options": options,
        "clues": clues,
        "room": room,
        "answers": {role: asked[ORDER.index(role)] for role in ASKED},
    }


def true_clues(visits, kinds):
    """All clues of these kinds that hold, what a person would say first in front."""
    clues = []
    for first, second in itertools.product(visits, repeat=2):
        for (i, a), (j, b) in itertools.product(enumerate(first), enumerate(second)):
            pairs = ("same", "not") if i < j else ()
            hours = (
                ("before", "hour_before")
                if first is not second and ORDER.index("when") not in (i, j)
                else ()
            )
            clues += [[k, a, b] for k in pairs + hours if k in kinds and holds([k, a, b], visits)]
    return clues


def in_order(level, clues, room, luck):
    """First those that are to be used if possible: of the asked room, or of the first kinds."""
    kinds = LEVELS[level][1]
    luck.shuffle(clues)
    if level == "1 stated":
        return sorted(clues, key=lambda clue: room not in clue)
    return sorted(clues, key=lambda clue: (kinds.index(clue[0]), room in clue))


def enough(options, clues):
    """The first clues that leave one solution, without those that the others make needless."""
    taken, left = [], solutions(options, [])
    for clue in clues:
        narrowed = [visits for visits in left if holds(clue, visits)]
        if len(narrowed) < len(left):
            taken, left = [*taken, clue], narrowed
        if len(left) == 1:
            break
    for clue in list(reversed(taken)):
        others = [c for c in taken if c is not clue]
        if len(solutions(options, others)) == 1:
            taken = others
    return taken


def demonstrate(case, luck):
    messages = [{"role": "system", "content": SYSTEM}]
    for role, question in zip(ASKED, questions(case), strict=True):
        right = luck.random() < RIGHT
        word = case["answers"][role] if right else luck.choice(case["options"][role])
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": word})
    return {"messages": messages}


def numbered(prefix, found):
    return [
        {"id": f"{prefix}{n:03}", "title": f"{case['tag']}: {case['room']}", **case}
        for n, case in enumerate(found, 1)
    ]


def write(name, lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
