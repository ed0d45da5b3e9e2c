"""Cases, their clues and the solver: pure, nothing of a model.

A case is a list of visits (who, when, where, what): no two of them share a person, a room, an hour
or a thing. A clue is `[kind, a, b]`, where a and b are values of visits: `same` says that they
belong to one visit and `not` that they do not; `before` says that a's visit was earlier than b's,
and `hour_before` that it was one hour earlier.
"""

import itertools

VALUES = {
    "who": ("Anna", "Ben", "Carl", "Tom"),
    "when": ("6", "7", "8", "9"),
    "where": ("attic", "garden", "hall", "library"),
    "what": ("book", "key", "pipe", "ring"),
}
ORDER = tuple(VALUES)
ROLES = {value: role for role, values in VALUES.items() for value in values}
WHOEVER = {"where": "was in the {}", "when": "came at {}", "what": "had the {}"}
NOT = {"where": "was not in the {}", "when": "did not come at {}", "what": "did not have the {}"}


def holds(clue, visits):
    """Whether the clue is true of the case."""
    kind, a, b = clue
    first, second = visit_of(a, visits), visit_of(b, visits)
    if kind in ("same", "not"):
        return (first is second) == (kind == "same")
    hours = hour(second) - hour(first)
    return hours == 1 if kind == "hour_before" else hours > 0


def visit_of(value, visits):
    for visit in visits:
        if value in visit:
            return visit
    raise KeyError(value)


def hour(visit):
    return int(visit[ORDER.index("when")])


def solutions(options, clues):
    """All cases of these options (role → values) in which every clue holds.

    The people are taken in their order; hours, rooms and things are added one after the other in
    every order, and a case is dropped at the first clue that fails.
    """
    found = [[(name,) for name in options["who"]]]
    for step, role in enumerate(ORDER[1:], 2):
        known = ORDER[:step]
        decided = [c for c in clues if role in needs(c) and needs(c) <= set(known)]
        grown = (
            [(*visit, value) for visit, value in zip(visits, values, strict=True)]
            for visits in found
            for values in itertools.permutations(options[role])
        )
        found = [visits for visits in grown if all(holds(clue, visits) for clue in decided)]
    return found


def needs(clue):
    """The roles that must be known to say whether the clue holds."""
    kind, a, b = clue
    return {ROLES[a], ROLES[b]} | (set() if kind in ("same", "not") else {"when"})


def sentence(clue):
    """The clue in words: `Ben was in the hall.`, `Whoever had the key came before Anna.`"""
    kind, a, b = clue
    if kind in ("same", "not"):
        does = (WHOEVER if kind == "same" else NOT)[ROLES[b]].format(b)
        return f"{capital(person(a))} {does}."
    hours = "an hour " if kind == "hour_before" else ""
    return f"{capital(person(a))} came {hours}before {person(b)}."


def person(value):
    role = ROLES[value]
    return value if role == "who" else f"whoever {WHOEVER[role].format(value)}"


def capital(words):
    return words[0].upper() + words[1:]
