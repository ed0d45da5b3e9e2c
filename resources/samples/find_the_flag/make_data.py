"""Writes the scenarios: `python make_data.py`, the same files every time."""

import json
import random
from pathlib import Path

from agent import QUESTION, describe

HERE = Path(__file__).parent
FARTHEST, TRAIN = 4, 24


def main():
    reach = range(-FARTHEST, FARTHEST + 1)
    flags = [(x, y) for x in reach for y in reach if 1 < abs(x) + abs(y) <= FARTHEST]
    random.Random(4).shuffle(flags)
    (HERE / "scenarios").mkdir(exist_ok=True)
    write("train", flags[:TRAIN])
    write("validation", flags[TRAIN:])


def write(name, flags):
    """No flag of the validation stands where one of the training stood."""
    lines = [
        {"id": f"{name[0]}{number:02}", "title": describe(*flag).removesuffix(f" {QUESTION}"), "flag": flag}
        for number, flag in enumerate(flags, 1)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (HERE / "scenarios" / f"{name}.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
