"""A small data base of shops and what they sold, in SQLite; the same on every machine."""

import random
import sqlite3

SEED = 5
CITIES = "Bern Graz Kiel Lyon Oslo Pisa Riga Turin".split()
NAMES = (
    "Amber Aspen Birch Bramble Cedar Clover Coral Daisy Delta Ember Fern Finch Ginger Grove Harbor Hazel Heron Iris Ivory "
    "Jade Juniper Kestrel Laurel Lotus Maple Meadow North Olive Orchid Pepper Poppy Quartz Raven River Saffron Sage Tulip "
    "Violet Willow Zephyr"
).split()
MONTHS = ("jan", "feb", "mar")
SCHEMA = "shops(name, city, staff, opened)\nsales(shop, month, amount)"
STEPS = 200_000
"""Instructions of SQLite's machine that a query may take: one that joins everything with everything is ended."""


def database():
    """In memory, made anew: what one attempt does is seen by no other."""
    luck = random.Random(SEED)
    made = sqlite3.connect(":memory:")
    made.execute("CREATE TABLE shops(name TEXT, city TEXT, staff INTEGER, opened INTEGER)")
    made.execute("CREATE TABLE sales(shop TEXT, month TEXT, amount INTEGER)")
    for name in NAMES:
        row = (name, luck.choice(CITIES[:5]), luck.randint(2, 30), luck.randint(1990, 2024))
        made.execute("INSERT INTO shops VALUES (?, ?, ?, ?)", row)
        for month in MONTHS:
            made.execute("INSERT INTO sales VALUES (?, ?, ?)", (name, month, luck.randint(5, 95) * 10))
    made.commit()
    made.set_authorizer(allowed)
    return made


def allowed(action, *_):
    """Reading, and nothing else: no changes, no other files."""
    reading = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
    return sqlite3.SQLITE_OK if action in reading else sqlite3.SQLITE_DENY


def run(sql):
    """The rows of one query, in any order; None where SQLite refuses it, or it takes too long."""
    made = database()
    left = [STEPS // 1000]

    def tick():
        left[0] -= 1
        return left[0] < 0

    made.set_progress_handler(tick, 1000)
    try:
        return sorted(made.execute(sql).fetchmany(1000), key=repr)
    except (sqlite3.Error, sqlite3.Warning):
        return None
    finally:
        made.close()
