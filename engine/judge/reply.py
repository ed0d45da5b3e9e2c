"""A judge's reply → scores by id, or what is wrong with it. Pure: a score is never invented."""

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from engine.protocol.judging import Rubric

FENCED = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL)
MOST_QUOTES = 4
MOST_REASON = 2000


class Opinion(NamedTuple):
    """What a reply says of one attempt."""

    score: float
    reason: str
    criteria: dict[str, float]
    quotes: list[str]


class Reading(NamedTuple):
    """Everything usable in a reply, and one sentence on what is not."""

    opinions: dict[str, Opinion]
    complaint: str


def read_reply(text: str, ids: Sequence[str], rubric: Rubric) -> Reading:
    """Align by id: each asked-for id exactly once, every number in [0, 1]."""
    data = json_object(text)
    if data is None:
        return Reading({}, "That was not a JSON object.")
    entries = data.get("attempts")
    if not isinstance(entries, list):
        return Reading({}, 'The object has no list "attempts".')
    opinions: dict[str, Opinion] = {}
    wrong: list[str] = []
    seen: set[str] = set()
    for entry in entries:
        name = str(entry.get("id", "")) if isinstance(entry, dict) else ""
        if name not in ids:
            wrong.append(f"{name[:20] or 'an entry without id'} was not asked for")
        elif name in seen:
            wrong.append(f"{name} is there twice")
            opinions.pop(name, None)
        else:
            seen.add(name)
            opinion = _opinion(entry, rubric)
            if isinstance(opinion, str):
                wrong.append(f"{name}: {opinion}")
            else:
                opinions[name] = opinion
    wrong += [f"{name} is missing" for name in ids if name not in seen]
    return Reading(opinions, f"The answer is not right: {'; '.join(wrong)}." if wrong else "")


def read_art_reply(text: str, count: int) -> Reading:
    """ART's form, `{"scores": [{"trajectory_id", "explanation", "score"}]}`, aligned by id."""
    data = json_object(text)
    entries = data.get("scores") if data else None
    if not isinstance(entries, list):
        return Reading({}, 'That was not a JSON object with a list "scores".')
    renamed = [
        {
            "id": str(entry.get("trajectory_id", "")),
            "reason": entry.get("explanation", ""),
            "score": entry.get("score"),
        }
        for entry in entries
        if isinstance(entry, dict)
    ]
    ids = [str(number) for number in range(1, count + 1)]
    return read_reply(json.dumps({"attempts": renamed}), ids, Rubric(source="", text=""))


def is_quoted(quote: str, transcript: str) -> bool:
    """Whether the words are there, whatever the white space between them."""
    wanted = " ".join(quote.split()).casefold()
    return bool(wanted) and wanted in " ".join(transcript.split()).casefold()


def _opinion(entry: dict[str, Any], rubric: Rubric) -> Opinion | str:
    criteria: dict[str, float] = {}
    if rubric.criteria:
        given = entry.get("criteria")
        if not isinstance(given, dict):
            return "it has no criteria"
        for criterion in rubric.criteria:
            value = _share(given.get(criterion.name))
            if value is None:
                return f"the criterion {criterion.name} is not a number from 0 to 1"
            criteria[criterion.name] = value
        weights = {criterion.name: criterion.weight for criterion in rubric.criteria}
        score = sum(weights[n] * v for n, v in criteria.items()) / sum(weights.values())
    else:
        value = _share(entry.get("score"))
        if value is None:
            return "its score is not a number from 0 to 1"
        score = value
    quotes = entry.get("quotes")
    quoted = [q for q in quotes if isinstance(q, str)] if isinstance(quotes, list) else []
    reason = entry.get("reason")
    words = reason[:MOST_REASON] if isinstance(reason, str) else ""
    return Opinion(score, words, criteria, quoted[:MOST_QUOTES])


def _share(value: Any) -> float | None:
    """A number from 0 to 1, else None: nothing is clamped, nothing guessed."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0 <= value <= 1 else None


def json_object(text: str) -> dict[str, Any] | None:
    """The reply itself, what stands in its fence, or the last whole object within prose."""
    for candidate in (text.strip(), *(found.strip() for found in FENCED.findall(text))):
        if isinstance(data := _parsed(candidate), dict):
            return data
    decoder = json.JSONDecoder()
    found: dict[str, Any] | None = None
    place = text.find("{")
    while place >= 0:
        try:
            data, end = decoder.raw_decode(text, place)
        except ValueError:
            end = place + 1
        else:
            found = data if isinstance(data, dict) else found
        place = text.find("{", end)
    return found


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
