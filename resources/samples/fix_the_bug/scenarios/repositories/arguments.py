"""Arguments to try the functions of the repositories with: by module and function, drawn by chance."""

NAMES = ("pen", "ink", "map", "cup", "bag")
TEXTS = ("the", "Fox", "sees", "a", "fox,", "and", "runs.", "Hens", "hens!", "are", "asleep", "The", "moon?", ".")
TEAMS = ("Ajax", "Boca", "Celta", "Derby")
WAYS = ("up", "down", "left", "right")


def cart(luck):
    return [[luck.choice(NAMES), luck.randint(1, 900), luck.choice((0, 1, 4, 5, 6, 9, 10, 11))] for _ in range(luck.randint(0, 4))]


def text(luck):
    return " ".join(luck.choice(TEXTS) for _ in range(luck.randint(0, 7)))


def cell(luck):
    return [luck.randint(-1, 5), luck.randint(-1, 5)]


def time(luck, hours=(0, 23)):
    return f"{luck.randint(*hours):02}:{luck.choice((0, 5, 15, 30, 45, 59)):02}"


def meeting(luck):
    hour = luck.randint(8, 12)
    return [f"{hour:02}:{luck.choice((0, 30)):02}", f"{hour + luck.randint(1, 2):02}:{luck.choice((0, 30)):02}"]


def entries(luck):
    return [[luck.randint(1, 21), luck.randint(-120, 90)] for _ in range(luck.randint(0, 5))]


def matches(luck):
    return [
        [home, luck.randint(0, 3), away, luck.randint(0, 3)]
        for home, away in (luck.sample(TEAMS, 2) for _ in range(luck.randint(0, 6)))
    ]


def some(luck, make, most):
    return [make(luck) for _ in range(luck.randint(0, most))]


def maybe(luck, low, high):
    """No argument, for a default, or one."""
    return (luck.randint(low, high),) if luck.random() < 0.5 else ()


ARGUMENTS = {
    "prices.with_tax": lambda luck: (luck.randint(0, 999), *maybe(luck, 5, 30)),
    "prices.discount": lambda luck: (luck.randint(0, 14),),
    "prices.line_price": lambda luck: (luck.randint(1, 900), luck.randint(0, 14)),
    "cart.total": lambda luck: (cart(luck),),
    "cart.dearest": lambda luck: (cart(luck),),
    "receipt.money": lambda luck: (luck.choice((luck.randint(0, 120), luck.randint(0, 9999))),),
    "receipt.receipt": lambda luck: (cart(luck),),
    "cleaning.words_of": lambda luck: (text(luck),),
    "cleaning.shorten": lambda luck: (text(luck)[: luck.randint(8, 30)], *maybe(luck, 5, 15)),
    "counting.counts": lambda luck: (text(luck),),
    "counting.common": lambda luck: (text(luck), *maybe(luck, 1, 3)),
    "counting.longest": lambda luck: (text(luck),),
    "report.report": lambda luck: (text(luck),),
    "report.similar": lambda luck: (text(luck), text(luck)),
    "cells.inside": lambda luck: (cell(luck), luck.randint(1, 5), luck.randint(1, 5)),
    "cells.distance": lambda luck: (cell(luck), cell(luck)),
    "cells.move": lambda luck: (cell(luck), luck.choice(WAYS), *maybe(luck, 1, 4)),
    "walks.walk": lambda luck: (
        [luck.randint(0, 2), luck.randint(0, 2)], [luck.choice(WAYS) for _ in range(luck.randint(0, 7))], 3, luck.randint(3, 4),
    ),
    "walks.nearest": lambda luck: (cell(luck), some(luck, cell, 4)),
    "walks.length": lambda luck: (some(luck, cell, 5),),
    "times.minutes": lambda luck: (time(luck),),
    "times.clock": lambda luck: (luck.randint(0, 1600),),
    "times.later": lambda luck: (time(luck), *maybe(luck, 1, 90)),
    "meetings.overlap": lambda luck: (meeting(luck), meeting(luck)),
    "meetings.free": lambda luck: (meeting(luck), some(luck, meeting, 3)),
    "meetings.busy": lambda luck: (some(luck, meeting, 4),),
    "meetings.first_free": lambda luck: (time(luck, (8, 11)), some(luck, meeting, 4)),
    "entries.balance": lambda luck: (entries(luck), *maybe(luck, 1, 90)),
    "entries.spent": lambda luck: (entries(luck),),
    "entries.between": lambda luck: (entries(luck), luck.randint(1, 9), luck.randint(7, 21)),
    "limits.lowest": lambda luck: (entries(luck), luck.randint(0, 90)),
    "limits.overdrawn": lambda luck: (entries(luck), luck.randint(0, 90), *maybe(luck, 1, 60)),
    "limits.over_budget": lambda luck: (entries(luck), luck.randint(1, 9), luck.randint(7, 21), luck.randint(0, 90)),
    "summary.week": lambda luck: (entries(luck), luck.randint(1, 3)),
    "summary.rating": lambda luck: (entries(luck), luck.randint(0, 90)),
    "matches.points": lambda luck: ((matches(luck) or [["Ajax", 1, "Boca", 1]])[0], luck.choice(TEAMS)),
    "matches.difference": lambda luck: ((matches(luck) or [["Ajax", 2, "Boca", 1]])[0], luck.choice(TEAMS)),
    "table.total": lambda luck: (matches(luck), luck.choice(TEAMS)),
    "table.ranking": lambda luck: (matches(luck),),
    "table.champion": lambda luck: (matches(luck),),
    "table.promoted": lambda luck: (matches(luck), *maybe(luck, 1, 3)),
}  # fmt: skip
