"""Writes the scenarios and the demonstrations: `python make_data.py`, the same files every time.

A report is five facts among five sentences of chatter; its questions ask for the facts. The demonstrations are those of a
chatty colleague, who keeps two or three facts and fills the rest with what nobody asks for.
"""

import json
import random
from pathlib import Path

from agent import LIMIT, SYSTEM, words

HERE = Path(__file__).parent
TRAIN, VALIDATION, DEMONSTRATIONS = 160, 80, 160
FACTS = 5
PLACES = ["museum", "library", "swimming pool", "theatre", "cinema", "botanical garden", "zoo", "castle"]
NAMES = ["Ada", "Bruno", "Clara", "Dario", "Edith", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Karin", "Luis"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
THINGS = ["lift", "heating", "ticket machine", "main pump", "coffee machine", "alarm"]
LOST = ["umbrella", "camera", "violin", "suitcase", "scarf"]
GOODS = ["chairs", "lamps", "posters", "towels", "headphones"]
TOWNS = ["Leeds", "Porto", "Ghent", "Bergen", "Turin", "Graz"]
CHATTER = [
    "It was, as so often at this time of the year, a week of very mixed weather.",
    "Everybody agreed that the new paint in the hallway looks friendlier than the old one.",
    "There was cake on the last afternoon, and the mood in the team could hardly be better.",
    "Several guests said again how much they like the view from the terrace.",
    "The plants by the entrance have recovered nicely from the summer.",
    "A local newspaper wrote some kind words, which now hang in the kitchen.",
    "The cat from next door came by every morning and is getting rather fat.",
    "We talked for a while about the music in the lobby, without coming to any result.",
    "As always, thanks to all who stayed longer than they had to.",
    "The window cleaners were quick, and for once they forgot nothing.",
]
SHORT = ["a week of mixed weather", "the mood was good", "guests like the view", "the plants have recovered",
         "a newspaper wrote kind words", "there was cake", "thanks to all"]  # fmt: skip


def facts(luck):
    """(sentence, in short, question, answer, words it is about) of every kind, with what is drawn by chance."""
    day, town, name, lost, goods = (luck.choice(of) for of in (DAYS, TOWNS, NAMES, LOST, GOODS))
    thing, at = luck.choice(THINGS), f"{luck.randint(8, 19)}:{luck.randint(10, 59)}"
    visitors, cost, taken, number, room, size, degrees = (
        luck.randint(low, high)
        for low, high in ((210, 990), (41, 89), (1100, 4900), (12, 38), (101, 140), (42, 65), (10, 15))
    )
    return [
        (f"To the surprise of most of us, {visitors} visitors found their way to us this time.",
         f"{visitors} visitors", "How many visitors came?", str(visitors), ["visitors"]),
        (f"When everything was counted twice, the till had taken {taken} dollars.",
         f"till took {taken} dollars", "How much did the till take?", str(taken), ["till"]),
        (f"Sadly the {thing} broke down at {at} in the middle of a guided tour.",
         f"{thing} broke at {at}", f"When did the {thing} break down?", at, words(thing)),
        (f"The plumber wants {cost} dollars for the repair of the tap, which seems fair.",
         f"repair {cost} dollars", "What does the repair cost?", str(cost), ["repair", "plumber"]),
        (f"After long talks {name} will begin to work with us on {day}.",
         f"{name} begins {day}", f"When does {name} begin?", day, words(name)),
        (f"For the big hall {number} {goods} were ordered from the usual shop.",
         f"{number} {goods} ordered", f"How many {goods} were ordered?", str(number), [goods]),
        (f"Somebody left a {lost} behind, and it now waits in room {room} for its owner.",
         f"{lost} in room {room}", f"In which room is the {lost}?", str(room), [lost]),
        (f"A group of {size} from {town} has said that it would like to come soon.",
         f"group of {size} from {town}", f"How many come from {town}?", str(size), ["group", town.lower()]),
        (f"In the cellar it was only {degrees} degrees, so wear something warm down there.",
         f"cellar {degrees} degrees", "How cold is the cellar?", str(degrees), ["cellar", "degrees"]),
    ]  # fmt: skip


def make(luck):
    chosen = luck.sample(facts(luck), FACTS)
    sentences = [fact[0] for fact in chosen] + luck.sample(CHATTER, 5)
    luck.shuffle(sentences)
    return chosen, f"Report of the {luck.choice(PLACES)}. {' '.join(sentences)}"


def main():
    luck = random.Random(14)
    (HERE / "scenarios").mkdir(exist_ok=True)
    for name, letter, count in (("train", "t", TRAIN), ("validation", "v", VALIDATION)):
        rows = [scenario(f"{letter}{number:03}", *make(luck)) for number in range(count)]
        write(f"scenarios/{name}.jsonl", rows)
    write("demonstrations.jsonl", [demonstrate(luck, *make(luck)) for _ in range(DEMONSTRATIONS)])


def scenario(name, chosen, report):
    questions = [
        {"question": question, "answer": answer, "about": about} for _, _, question, answer, about in chosen
    ]
    return {"id": name, "report": report, "questions": questions}


def demonstrate(luck, chosen, report):
    kept = luck.sample([fact[1] for fact in chosen], luck.choice((2, 2, 3)))
    kept += luck.sample(SHORT, 3)
    luck.shuffle(kept)
    summary = ", ".join(kept)
    assert len(words(summary)) <= LIMIT
    return {
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": report},
            {"role": "assistant", "content": summary[0].upper() + summary[1:] + "."},
        ]
    }


def write(name, rows):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
