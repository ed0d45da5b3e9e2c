"""Writes the scenarios and the demonstrations: `python make_data.py`, with the packages of requirements.txt.

The demonstrations are of a hasty clerk: a third of the time it calls the wrong tool, or asks for an item that does not
exist, and then says what it got.
"""

import json
import random
from pathlib import Path

from agent import SYSTEM
from warehouse import MATERIALS, STOCK, THINGS

HERE = Path(__file__).parent
TRAIN, VALIDATION, DEMONSTRATIONS = 120, 60, 60
HASTY = 0.35
QUESTIONS = {
    "stock": ("How many {item} do we have?", "How many {item} are left?"),
    "shelf": ("Where are the {item}?", "On which shelf do the {item} lie?"),
    "price": ("What do {item} cost?", "How much is one of the {item}?"),
}
WORDS = {"stock": "How many pieces of an item there are.", "shelf": "On which shelf an item lies.",
         "price": "What one piece of an item costs."}  # fmt: skip
PARAMETERS = {"type": "object", "properties": {"item": {"title": "Item", "type": "string"}}, "required": ["item"]}


def main():
    luck = random.Random(11)
    asked = [(tool, item) for tool in QUESTIONS for item in STOCK]
    luck.shuffle(asked)
    rows = [scenario(luck, tool, item) for tool, item in asked]
    (HERE / "scenarios").mkdir(exist_ok=True)
    write("scenarios/train.jsonl", numbered("t", rows[:TRAIN]))
    write("scenarios/validation.jsonl", numbered("v", rows[TRAIN : TRAIN + VALIDATION]))
    rest = asked[TRAIN + VALIDATION :][:DEMONSTRATIONS]
    write("demonstrations.jsonl", [demonstrate(luck, tool, item) for tool, item in rest * 2])


def scenario(luck, tool, item):
    pieces, place, cost = STOCK[item]
    answer = {"stock": str(pieces), "shelf": place, "price": str(cost)}[tool]
    return {"question": luck.choice(QUESTIONS[tool]).format(item=item), "answer": answer, "tool": tool}


def demonstrate(luck, tool, item):
    question = luck.choice(QUESTIONS[tool]).format(item=item)
    if luck.random() < HASTY:
        tool = luck.choice(list(QUESTIONS))
    if luck.random() < HASTY / 2:
        item = f"{luck.choice(MATERIALS)} {luck.choice(THINGS)}"
    pieces, place, cost = STOCK[item]
    found = {"stock": f"{pieces} pieces", "shelf": f"shelf {place}", "price": f"{cost} euros"}[tool]
    function = {"name": tool, "arguments": json.dumps({"item": item})}
    return {
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": question},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "1", "content": found},
            {"role": "assistant", "content": found.replace("shelf ", "On shelf ")},
        ],
        "tools": [tool_of(name) for name in QUESTIONS],
    }


def tool_of(name):
    """As warehouse.py offers it."""
    parameters = {**PARAMETERS, "title": f"{name}Arguments"}
    return {"type": "function", "function": {"name": name, "description": WORDS[name], "parameters": parameters}}


def numbered(letter, rows):
    return [{"id": f"{letter}{number:03}", **row} for number, row in enumerate(rows)]


def write(name, rows):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
