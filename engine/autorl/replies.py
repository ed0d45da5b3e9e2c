"""Parser of the writer model's replies: usable content, and a sentence on what is unusable. Pure:
missing parts are not made up, and rejected ones are counted."""

from collections import Counter
from typing import Any, NamedTuple

from engine.judge.prompting.reply import json_object
from engine.protocol.requests.drafts import DraftScenario

LONGEST = 8000
"""Maximum characters of an input."""
TEXT_KEYS = ("input", "task", "question", "prompt", "request", "scenario")


class Plan(NamedTuple):
    title: str
    system: str
    rubric: str
    complaint: str = ""


class Scenarios(NamedTuple):
    """Usable scenarios, rejections by reason, and a complaint if none is usable."""

    items: list[DraftScenario]
    left_out: Counter[str]
    complaint: str = ""


def read_plan(text: str) -> Plan:
    """Parse title, system prompt and rubric of an LLM's reply. If one is missing, all are empty and
    the `complaint` of the result says why."""
    data = json_object(text)
    if data is None:
        return Plan("", "", "", _no_object(text))
    values = [data.get(name) for name in ("title", "system_prompt", "rubric")]
    lacking = [
        name
        for name, value in zip(("title", "system_prompt", "rubric"), values, strict=True)
        if not isinstance(value, str) or not value.strip()
    ]
    if lacking:
        return Plan("", "", "", f"the object has no text for {', '.join(lacking)}")
    title, system, rubric = (str(value).strip() for value in values)
    return Plan(title, system, f"{rubric}\n")


def read_scenarios(text: str) -> Scenarios:
    """Parse scenarios from an LLM's reply. Invalid entries are left out and counted by reason; if
    none is valid, the `complaint` of the result says why."""
    data = json_object(text)
    entries = _entries(data) if data is not None else None
    if entries is None:
        why = _no_object(text) if data is None else 'the object has no list "scenarios"'
        return Scenarios([], Counter(), why)
    items, left_out = [], Counter[str]()
    for entry in entries:
        found = _scenario(entry)
        if isinstance(found, str):
            left_out[found] += 1
        else:
            items.append(found)
    return Scenarios(items, left_out, "" if items else "none of its entries has an input")


def _entries(data: dict[str, Any]) -> list[Any] | None:
    named = data.get("scenarios")
    lists = [value for value in data.values() if isinstance(value, list)]
    return named if isinstance(named, list) else lists[0] if len(lists) == 1 else None


def _scenario(entry: Any) -> DraftScenario | str:
    text = entry if isinstance(entry, str) else None
    difficulty = None
    if isinstance(entry, dict):
        texts = (entry.get(key) for key in TEXT_KEYS)
        text = next((value for value in texts if isinstance(value, str)), None)
        rating = entry.get("difficulty")
        if isinstance(rating, int) and not isinstance(rating, bool) and 1 <= rating <= 5:
            difficulty = rating
    if text is None or not text.strip():
        return "without an input"
    if len(text) > LONGEST:
        return f"longer than {LONGEST} characters"
    return DraftScenario(input=text.strip(), difficulty=difficulty)


def _no_object(text: str) -> str:
    words = " ".join(text.split())
    reason = f", it says: {words[:120]}" if words else ", it is empty"
    return f"the answer is not a JSON object{reason}"
