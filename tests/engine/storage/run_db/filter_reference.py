"""Reference evaluation of filters in Python, on records instead of rows. Text is compared by its
words in lower case, so it agrees with the search index on ASCII text."""

import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

from engine.protocol.records.runs import Trajectory
from engine.protocol.requests.filters import And, Comparison, Match, Node, Not, TextSearch
from engine.storage.run_db.facts import facts_of, search_text_of

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


def holds(node: Node, one: Trajectory, signal: bool = False) -> bool | None:
    """Whether a filter holds for a trajectory; None is unknown, which is no match. `signal`:
    whether its group has signal."""
    if isinstance(node, Comparison):
        figure = _figure(node, one)
        return None if figure is None else OPERATORS[node.operator](figure, node.figure)
    if isinstance(node, Match):
        return _matches(node, one, signal)
    if isinstance(node, TextSearch):
        return _contains(node, one)
    if isinstance(node, Not):
        found = holds(node.condition, one, signal)
        return None if found is None else not found
    results = [holds(part, one, signal) for part in node.conditions]
    decisive = not isinstance(node, And)  # one false ends an `and`, one true an `or`
    if decisive in results:
        return decisive
    return None if None in results else not decisive


def _figure(node: Comparison, one: Trajectory) -> float | None:
    facts = facts_of(one)
    if node.field in ("part", "metric"):
        return {"part": one.parts, "metric": one.metrics}[node.field].get(node.name)
    figures: dict[str, float | None] = {
        "reward": one.reward,
        "advantage": one.advantage,
        "step": one.step,
        "group": one.group + 1,
        "turns": one.turns,
        "tokens": one.sampled_tokens,
        "duration": one.duration_s,
        "latency": facts.latency_s,
        "tool_calls": facts.tool_calls,
        "tool_errors": facts.tool_errors,
        "cost": one.cost_usd,
    }
    return figures[node.field]


def _matches(node: Match, one: Trajectory, signal: bool) -> bool:
    value = node.value
    if node.field == "is":
        unscored = one.reward is None
        return {
            "unscored": unscored and not one.awaits_judge,
            "scored": not unscored,
            "waiting": unscored and one.awaits_judge,
            "truncated": one.truncated,
            "marked": one.marked,
            "labelled": bool(one.labels),
            "signal": signal,
        }[value]
    if node.field == "scenario":
        return value == one.scenario_id or value.lower() in one.title.lower()
    if node.field == "tool":
        return value.lower() in {name.lower() for name in facts_of(one).tools}
    if node.field == "label":
        return value.lower() in one.labels
    if node.field == "model":
        return value in (one.contestant, one.provider)
    return value == one.split


def _contains(node: TextSearch, one: Trajectory) -> bool:
    text = search_text_of(one)
    columns: Iterable[str] = text if node.field == "text" else [getattr(text, node.field)]
    words = _words(node.words)
    found = [_words(column) for column in columns]
    if node.phrase:
        return any(_has_phrase(column, words) for column in found)
    everything = [word for column in found for word in column]
    starts = any(word.startswith(words[-1]) for word in everything)
    return starts and all(word in everything for word in words[:-1])


def _has_phrase(text: list[str], words: list[str]) -> bool:
    starts = range(len(text) - len(words) + 1)
    return any(text[start : start + len(words)] == words for start in starts)


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+|\ue000", text.lower())
