"""Writes the scenarios and the demonstrations: `python make_data.py`, the same files every time.

The demonstrations stand for a teacher's: correct form, and every fourth one with another number, city or month than was
asked for. To have a real teacher write them: `atelier distill PROJECT --teacher openai/gpt-5.4 --keep above:0.9
--out demonstrations.jsonl`.
"""

import json
import random
from pathlib import Path

from agent import SYSTEM
from shop import CITIES, MONTHS, NAMES, run

HERE = Path(__file__).parent
TRAIN, VALIDATION, DEMONSTRATIONS = 160, 96, 160
SLIPS = 0.25
WORDS = {"jan": "January", "feb": "February", "mar": "March"}


def kinds(luck):
    """(question, query) of every kind, with what is asked for drawn by chance."""
    city, name, month = luck.choice(CITIES[:5]), luck.choice(NAMES), luck.choice(MONTHS)
    staff, year, amount = luck.randint(4, 28), luck.randint(1992, 2022), luck.randint(10, 90) * 10
    return [
        (f"How many shops are in {city}?", f"SELECT COUNT(*) FROM shops WHERE city = '{city}'"),
        (f"Which shops are in {city}?", f"SELECT name FROM shops WHERE city = '{city}'"),
        (f"Which shops have more than {staff} staff?", f"SELECT name FROM shops WHERE staff > {staff}"),
        (f"How many shops opened after {year}?", f"SELECT COUNT(*) FROM shops WHERE opened > {year}"),
        (f"When did {name} open?", f"SELECT opened FROM shops WHERE name = '{name}'"),
        (f"In which city is {name}?", f"SELECT city FROM shops WHERE name = '{name}'"),
        (
            f"What did {name} sell in {WORDS[month]}?",
            f"SELECT amount FROM sales WHERE shop = '{name}' AND month = '{month}'",
        ),
        (f"What did {name} sell in all?", f"SELECT SUM(amount) FROM sales WHERE shop = '{name}'"),
        (
            f"Which shops sold more than {amount} in {WORDS[month]}?",
            f"SELECT shop FROM sales WHERE month = '{month}' AND amount > {amount}",
        ),
        (f"What was sold in {WORDS[month]} in all?", f"SELECT SUM(amount) FROM sales WHERE month = '{month}'"),
        (f"Which shop in {city} has the most staff?",
         f"SELECT name FROM shops WHERE city = '{city}' ORDER BY staff DESC LIMIT 1"),
        (f"How many staff work in {city}?", f"SELECT SUM(staff) FROM shops WHERE city = '{city}'"),
    ]  # fmt: skip


def main():
    luck = random.Random(13)
    found = {}
    while len(found) < TRAIN + VALIDATION + DEMONSTRATIONS:
        question, sql = luck.choice(kinds(luck))
        if run(sql) and run(sql) != [(None,)]:
            found.setdefault(question, sql)
    rows = [{"question": question, "sql": sql} for question, sql in found.items()]
    luck.shuffle(rows)
    (HERE / "scenarios").mkdir(exist_ok=True)
    write("scenarios/train.jsonl", numbered("t", rows[:TRAIN]))
    write("scenarios/validation.jsonl", numbered("v", rows[TRAIN : TRAIN + VALIDATION]))
    write("demonstrations.jsonl", [demonstrate(luck, row) for row in rows[TRAIN + VALIDATION :]])


def demonstrate(luck, row):
    sql = slip(luck, row["sql"]) if luck.random() < SLIPS else row["sql"]
    return {
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": row["question"]},
            {"role": "assistant", "content": sql},
        ]
    }


def slip(luck, sql):
    """A wrong comparison, column or table: what a hurried teacher writes."""
    pairs = [(">", "<"), ("COUNT(*)", "SUM(staff)"), ("SELECT name", "SELECT city"), ("SUM(amount)", "amount"),
             ("SELECT opened", "SELECT staff"), ("DESC", "ASC"), ("SELECT city", "SELECT name"), ("SELECT amount", "SELECT month"),
             ("SELECT shop ", "SELECT amount "), ("SUM(staff)", "COUNT(*)")]  # fmt: skip
    fitting = [pair for pair in pairs if pair[0] in sql]
    return sql.replace(*luck.choice(fitting), 1) if fitting else sql


def numbered(letter, rows):
    return [{"id": f"{letter}{number:03}", **row} for number, row in enumerate(rows)]


def write(name, rows):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
