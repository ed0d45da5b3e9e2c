"""Writes the scenarios and the demonstrations: `python make_data.py`, the same files every time.

The demonstrations come from a mediocre walker: half of its steps go towards the flag, the others
anywhere. It shows the model what an answer is, and hints at what a good one is; the rest is left to
be learned from the reward.
"""

import json
import random
from pathlib import Path

from agent import QUESTION, STEPS, describe

HERE = Path(__file__).parent
FARTHEST, TRAIN, DEMONSTRATIONS = 4, 24, 160


def main():
    luck = random.Random(4)
    reach = range(-FARTHEST, FARTHEST + 1)
    flags = [(x, y) for x in reach for y in reach if 1 < abs(x) + abs(y) <= FARTHEST]
    luck.shuffle(flags)
    (HERE / "scenarios").mkdir(exist_ok=True)
    write("scenarios/train.jsonl", numbered("t", flags[:TRAIN]))
    write("scenarios/validation.jsonl", numbered("v", flags[TRAIN:]))
    walks = [demonstrate(luck.choice(flags[:TRAIN]), luck) for _ in range(DEMONSTRATIONS)]
    write("demonstrations.jsonl", walks)


def demonstrate(flag, luck):
    right, up = flag
    messages = []
    for _ in range(abs(right) + abs(up)):
        messages.append({"role": "user", "content": describe(right, up)})
        towards = [w for w, (x, y) in STEPS.items() if x * right > 0 or y * up > 0]
        word = luck.choice(towards if towards and luck.random() < 0.5 else list(STEPS))
        messages.append({"role": "assistant", "content": word})
        right, up = right - STEPS[word][0], up - STEPS[word][1]
    return {"messages": messages}


def numbered(prefix, flags):
    """No flag of the validation stands where one of the training stood."""
    return [
        {
            "id": f"{prefix}{number:02}",
            "title": describe(*flag).removesuffix(f" {QUESTION}"),
            "flag": flag,
        }
        for number, flag in enumerate(flags, 1)
    ]


def write(name, lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
