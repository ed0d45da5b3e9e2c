"""Writes the scenarios and the demonstrations: `python make_data.py`, the same files every time.

The demonstrations come from a mediocre guesser: half of its guesses are blind, the others fit the
clue. It shows the model what a guess is, and hints at what a good one is; the rest is left to be
learned from the reward. A third of all words is kept for the validation.
"""

import json
import random
from pathlib import Path

from agent import SYSTEM, Game
from words import FITS, fits

HERE = Path(__file__).parent
CLUES, MEANT, OTHERS = 1, 3, 3
TRAIN, VALIDATION, DEMONSTRATIONS, SENSIBLE = 192, 128, 160, 0.5


def main():
    luck = random.Random(25)
    held_out = {word for words in FITS.values() for word in words[2::3]}
    known = {word for words in FITS.values() for word in words} - held_out
    (HERE / "scenarios").mkdir(exist_ok=True)
    write("scenarios/train.jsonl", [deal(f"t{n:03}", known, luck) for n in range(1, TRAIN + 1)])
    write(
        "scenarios/validation.jsonl",
        [deal(f"v{n:03}", held_out, luck) for n in range(1, VALIDATION + 1)],
    )
    games = [demonstrate(deal("", known, luck), luck) for _ in range(DEMONSTRATIONS)]
    write("demonstrations.jsonl", games)


def deal(name, words, luck):
    """A table of these words: what each clue means fits it, and nothing else on the table does."""
    clues = luck.sample(sorted(FITS), CLUES)
    means = [
        luck.sample([w for w in FITS[clue] if w in words and fitting(w, clues) == [clue]], MEANT)
        for clue in clues
    ]
    rest = luck.sample([word for word in sorted(words) if not fitting(word, clues)], OTHERS + 1)
    table = [word for part in means for word in part] + rest
    luck.shuffle(table)
    return {
        "id": name,
        "title": f"{', '.join(clues)}: {' '.join(table)}",
        "table": table,
        "clues": [{"word": c, "means": m} for c, m in zip(clues, means, strict=True)],
        "assassin": rest[0],
    }


def fitting(word, clues):
    return [clue for clue in clues if fits(clue, word)]


def demonstrate(scenario, luck):
    messages = [{"role": "system", "content": SYSTEM}]
    game = Game(scenario)
    while not game.over:
        clue = game.clues[0]["word"]
        fitting_words = [word for word in game.table if fits(clue, word)]
        word = luck.choice(fitting_words if luck.random() < SENSIBLE else game.table)
        messages.append({"role": "user", "content": game.show()})
        messages.append({"role": "assistant", "content": word})
        game.guess(word)
    return {"messages": messages}


def write(name, lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
