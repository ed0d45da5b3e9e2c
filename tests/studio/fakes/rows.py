"""Filters and sorting of the fake engine's trajectory queries."""

from collections.abc import Callable
from typing import Any

from engine.protocol.requests.filters import parse_filter
from engine.protocol.requests.runs import TrajectoryQuery
from tests.engine.storage.run_db.filter_reference import holds
from tests.studio.fakes.simulated_run import Made, whole


def matching(made: Made, query: TrajectoryQuery) -> list[Any]:
    """Rows that match a query, in its order. Raises Refused for an invalid filter."""
    parse_filter(query.filter)
    rows = [r for r in made.trajectories if _fits(r, query)]
    keys: dict[str, Callable[[Any], Any]] = {
        "recent": lambda r: made.trajectories.index(r) if len(rows) < 50 else 0,
        "step": lambda r: r.step,
        "title": lambda r: r.title,
        "reward": lambda r: r.reward if r.reward is not None else -1,
        "advantage": lambda r: r.advantage or 0,
        "turns": lambda r: r.turns,
        "tokens": lambda r: r.sampled_tokens,
        "duration": lambda r: r.duration_s,
    }
    if query.sort == "recent":
        return rows[::-1] if query.descending else rows
    return sorted(rows, key=keys[query.sort], reverse=query.descending)


def _fits(row: Any, query: TrajectoryQuery) -> bool:
    low, high = query.step, query.step_to if query.step_to is not None else query.step
    state = {
        "all": True,
        "scored": row.reward is not None,
        "unscored": row.reward is None,
        "truncated": row.truncated,
    }[query.state]
    node = parse_filter(query.filter)
    return (
        state
        and (query.labelled in (None, bool(row.labels)))
        and (query.split in (None, row.split))
        and (low is None or low <= row.step <= (high or low))
        and (query.group in (None, row.group))
        and (query.scenario_id in (None, row.scenario_id))
        and (node is None or holds(node, whole(row)) is True)
    )
