"""Writes the scenarios and the demonstrations: `python make_data.py`, the same files every time.

The demonstrations come from a clerk who knows the tools and is careless: a third of the time it searches for too few
words, or opens the wrong mail, or says another number of the right one.
"""

import json
import random
from pathlib import Path

from agent import SYSTEM, TOOLS
from inbox import inbox, mails, read, search

HERE = Path(__file__).parent
TRAIN, VALIDATION, DEMONSTRATIONS = 240, 96, 160
CARELESS = 0.35


def main():
    luck = random.Random(7)
    asked = [
        {"question": one["question"], "answer": one["answer"], "mail": number, "kind": one["kind"]}
        for number, one in enumerate(mails(), 1)
        if one["question"]
    ]
    luck.shuffle(asked)
    (HERE / "scenarios").mkdir(exist_ok=True)
    rest = asked[TRAIN + VALIDATION :][:DEMONSTRATIONS]
    write("scenarios/train.jsonl", numbered("t", asked[:TRAIN]))
    write("scenarios/validation.jsonl", numbered("v", asked[TRAIN : TRAIN + VALIDATION]))
    database = inbox()
    write("demonstrations.jsonl", [demonstrate(database, one, luck) for one in rest])
    database.close()


def demonstrate(database, asked, luck):
    """A search, a mail, an answer; not always the right ones."""
    words = keywords(asked["question"])
    if luck.random() < CARELESS:
        words = luck.sample(words, max(1, len(words) - 1))
    rows = search(database, " ".join(words))
    number = rows[0][0]
    if luck.random() < CARELESS:
        number = luck.choice(rows)[0]
    text = read(database, number)[3]
    answer = asked["answer"] if number == asked["mail"] else luck.choice(facts_in(text))
    if luck.random() < CARELESS:
        answer = luck.choice(facts_in(text))
    return {
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": asked["question"]},
            call("search_inbox", words=" ".join(words)),
            {"role": "tool", "tool_call_id": "search_inbox", "content": "\n".join(f"{n}: {s}" for n, s in rows)},
            call("read_mail", id=number),
            {"role": "tool", "tool_call_id": "read_mail", "content": text},
            {"role": "assistant", "content": answer},
        ],
        "tools": TOOLS,
    }


def keywords(question):
    """The words that stand in the mail: what kind it is, and names."""
    kinds = ("invoice", "parcel", "flight", "meet")
    plain = question.rstrip("?").split()
    kind = [word for word in plain if word in kinds]
    names = [word for word in plain[1:] if word[0].isupper() and word != "I"]
    about = plain[-1:] if "about" in plain else []
    return ["meeting" if word == "meet" else word for word in kind] + names + about


def facts_in(text):
    """Everything in a mail that could be an answer."""
    plain = text.replace(",", " ").replace(".", " ").split()
    found = [word for word in plain if any(c.isdigit() for c in word)]
    return found or plain[-2:]


def call(name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": name, "type": "function", "function": function}]}


def numbered(letter, rows):
    return [{"id": f"{letter}{number:03}", **row} for number, row in enumerate(rows)]


def write(name, rows):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
