"""Saved filters: each query is a line of JSON in the settings (pure functions)."""

import json
from collections.abc import Sequence

from pydantic import ValidationError

from engine.protocol.requests.runs import TrajectoryQuery

MOST = 20
_PAGING = {"offset", "limit", "sort", "descending"}


def packed(query: TrajectoryQuery) -> str:
    """Serialize the non-default fields of a query as JSON, without paging and group."""
    fields = query.model_dump(exclude_defaults=True, exclude={*_PAGING, "group"})
    return json.dumps(fields, sort_keys=True, ensure_ascii=False)


def unpacked(line: str) -> TrajectoryQuery | None:
    """Parse a saved filter; None if this version cannot read it."""
    try:
        return TrajectoryQuery.model_validate_json(line)
    except ValidationError:
        return None


def kept(lines: Sequence[str], query: TrajectoryQuery) -> list[str]:
    """Return the saved filters `lines` with `query` first, without the oldest above the limit."""
    new = packed(query)
    return [new, *(line for line in lines if line != new)][:MOST]


def name_of(query: TrajectoryQuery) -> str:
    """Describe a query: "Steps 3–9 · no signal · not labelled · tool:search"."""
    words = []
    if query.step is not None:
        last = query.step if query.step_to is None else query.step_to
        words.append(f"step {query.step}" if last == query.step else f"steps {query.step}–{last}")
    words += [{"train": "training", "validation": "validation"}[query.split]] if query.split else []
    states = {"unscored": "unscored", "truncated": "cut", "scored": "scored"}
    words += [states[query.state]] if query.state != "all" else []
    if query.signal is not None:
        words.append("with signal" if query.signal else "no signal")
    if query.labelled is not None:
        words.append("labelled" if query.labelled else "not labelled")
    words += [f"scenario {query.scenario_id}"] if query.scenario_id else []
    if not words and query.filter:
        return query.filter  # an expression is shown as it was typed
    words += [query.filter] if query.filter else []
    description = " · ".join(words) or "everything"
    return description[:1].upper() + description[1:]
