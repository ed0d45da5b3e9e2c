"""Parser of judge replies: scores by id, or what is wrong. Pure: a score is never invented."""

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from engine.protocol.json_text import DECODER, parse_json
from engine.protocol.records.judging import Rubric

REASONING = ("think", "thinking", "reasoning")
"""Names of tags around the reasoning of models."""
MOST_QUOTES = 4
MOST_REASON = 2000
MOST_CHARS = 1_000_000

Fault = Literal["", "form", "cut", "filtered"]
"""Reason why a reply cannot be used: its form, the token limit, or the provider's content
filter."""


class RolloutScore(NamedTuple):
    """Score and reason that a reply gives one rollout."""

    score: float
    reason: str
    criteria: dict[str, float]
    quotes: list[str]


class Reading(NamedTuple):
    """Usable part of a reply, and one sentence on the rest."""

    opinions: dict[str, RolloutScore]
    complaint: str
    fault: Fault = ""


class Contradiction(Exception):
    """A reply of which no part can be trusted; its text gives the reason."""


def read_reply(text: str, ids: Sequence[str], rubric: Rubric, finish: str = "") -> Reading:
    """Parse a judge's reply and align its entries by the `ids` of the trajectories. `finish` is the
    provider's finish_reason. A reply that was truncated or filtered, has a number outside [0, 1] or
    contradicts itself is rejected as a whole, since its other numbers are no evidence either. A
    missing entry, or one without a number, does not affect the others."""
    if fault := _unfinished(text, finish):
        return fault
    try:
        data = _answer(text, "attempts")
        return _aligned(data["attempts"], ids, rubric)
    except Contradiction as error:
        return Reading({}, str(error), "form")


def _unfinished(text: str, finish: str) -> Reading | None:
    """Reason why a reply is not a whole answer, or None."""
    if finish == "content_filter":
        return Reading({}, "The answer was withheld by a content filter.", "filtered")
    if finish == "length":
        return Reading({}, "The answer was cut at the token limit.", "cut")
    if len(text) > MOST_CHARS:
        return Reading({}, f"The answer is longer than {MOST_CHARS:,} characters.", "form")
    return None


def _aligned(entries: list[Any], ids: Sequence[str], rubric: Rubric) -> Reading:
    """Parse the entries of a reply and align them by id. Raises Contradiction."""
    opinions: dict[str, RolloutScore] = {}
    wrong: list[str] = []
    seen: dict[str, RolloutScore | str] = {}
    for entry in entries:
        name = str(entry.get("id", "")) if isinstance(entry, dict) else ""
        if name not in ids:
            wrong.append(f"{name[:20] or 'an entry without id'} was not asked for")
            continue
        opinion = _opinion(name, entry, rubric)
        if name in seen:
            if _numbers(seen[name]) != _numbers(opinion):
                raise Contradiction(f"{name} occurs twice, with different scores.")
            continue
        seen[name] = opinion
        if isinstance(opinion, str):
            wrong.append(f"{name}: {opinion}")
        else:
            opinions[name] = opinion
    wrong += [f"{name} is missing" for name in ids if name not in seen]
    complaint = f"The answer is invalid: {'; '.join(wrong)}." if wrong else ""
    return Reading(opinions, complaint, "form" if wrong else "")


def _numbers(opinion: RolloutScore | str) -> tuple[float, dict[str, float]] | str:
    return opinion if isinstance(opinion, str) else (opinion.score, opinion.criteria)


def read_art_reply(text: str, count: int, finish: str = "") -> Reading:
    """Parse a reply in ART's format on `count` trajectories: `{"scores": [{"trajectory_id",
    "explanation", "score"}]}`. What is rejected, and `finish`, are as in `read_reply`."""
    if fault := _unfinished(text, finish):
        return fault
    ids = [str(number) for number in range(1, count + 1)]
    try:
        entries = [
            {
                "id": str(entry.get("trajectory_id", "")),
                "reason": entry.get("explanation", ""),
                "score": entry.get("score"),
            }
            for entry in _answer(text, "scores")["scores"]
            if isinstance(entry, dict)
        ]
        return _aligned(entries, ids, Rubric(source="", text=""))
    except Contradiction as error:
        return Reading({}, str(error), "form")


def is_quoted(quote: str, transcript: str) -> bool:
    """Whether a quote occurs in the transcript, ignoring differences in white space."""
    wanted = " ".join(quote.split()).casefold()
    return bool(wanted) and wanted in " ".join(transcript.split()).casefold()


def _opinion(name: str, entry: dict[str, Any], rubric: Rubric) -> RolloutScore | str:
    """Parse one entry of a reply into an opinion, or name its error. Raises Contradiction for a
    number outside [0, 1]."""
    criteria: dict[str, float] = {}
    if rubric.criteria:
        given = entry.get("criteria")
        if not isinstance(given, dict):
            return "it has no criteria"
        for criterion in rubric.criteria:
            value = _share(f"{name}: {criterion.name}", given.get(criterion.name))
            if value is None:
                return f"the criterion {criterion.name} is not a number from 0 to 1"
            criteria[criterion.name] = value
        weights = {criterion.name: criterion.weight for criterion in rubric.criteria}
        score = sum(weights[n] * v for n, v in criteria.items()) / sum(weights.values())
    else:
        value = _share(f"{name}: the score", entry.get("score"))
        if value is None:
            return "its score is not a number from 0 to 1"
        score = value
    quotes = entry.get("quotes")
    quoted = [q for q in quotes if isinstance(q, str)] if isinstance(quotes, list) else []
    reason = entry.get("reason")
    words = reason[:MOST_REASON] if isinstance(reason, str) else ""
    return RolloutScore(score, words, criteria, quoted[:MOST_QUOTES])


def _share(what: str, value: Any) -> float | None:
    """Return a number from 0 to 1, or None for anything that is not a number. Never clamps. Raises
    Contradiction for other numbers: the judge then uses another scale, on which even its 1 has
    another meaning."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= 1:
        raise Contradiction(f"{what} is {str(value)[:20]}, but scores are numbers from 0 to 1.")
    return float(value)


def _answer(text: str, key: str) -> dict[str, Any]:
    """Return the only object of a reply with a list under `key`. Raises Contradiction if there is
    none, or several different ones."""
    found = json_objects(text)
    if not found:
        raise Contradiction("That was not a JSON object.")
    with_list = [data for data in found if isinstance(data.get(key), list)]
    if not with_list:
        raise Contradiction(f'The object has no list "{key}".')
    if len(with_list) > 1:
        raise Contradiction(f"There are {len(with_list)} different answers, not one.")
    return with_list[0]


def json_object(text: str) -> dict[str, Any] | None:
    """Return the last complete JSON object of a reply, outside its reasoning, or None."""
    found = json_objects(text)
    return found[-1] if found else None


def json_objects(text: str) -> list[dict[str, Any]]:
    """Return the distinct outermost JSON objects of a reply, outside its reasoning. Empty if any
    object is nested too deeply, has duplicate keys or a number that is not finite. The contents of
    malformed objects are skipped."""
    if isinstance(whole := _parsed(text), dict):
        return [whole]
    text = without_reasoning(text)
    found: list[dict[str, Any]] = []
    place = text.find("{")
    while place >= 0:
        try:
            data, end = DECODER.raw_decode(text, place)
        except json.JSONDecodeError as error:
            end = max(error.pos, place + 1)
        except (ValueError, RecursionError):
            return []
        else:
            if data not in found:
                found.append(data)
        place = text.find("{", end)
    return found


def without_reasoning(text: str) -> str:
    """Return the text of a reply after its reasoning; empty if the reasoning does not end."""
    for tag in REASONING:
        text = text.rpartition(f"</{tag}>")[2].partition(f"<{tag}>")[0]
    return text


def _parsed(text: str) -> Any:
    try:
        return parse_json(text.strip())
    except ValueError:
        return None
