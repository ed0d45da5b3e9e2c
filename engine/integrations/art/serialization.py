"""Conversion of ART's groups into requests. Choices keep the id that the engine gave them. If a
library dropped the id, log-probs are sent instead, which identify the choice as well."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from engine.protocol.requests.scripts import (
    CHOICE_ID,
    SentAttempt,
    SentError,
    SentGroup,
    SentHistory,
)


def sent_group(group: Any) -> SentGroup:
    """Serialise an art.TrajectoryGroup."""
    return SentGroup(
        trajectories=[_attempt(one) for one in group.trajectories],
        exceptions=[
            SentError(type=one.type, message=one.message, traceback=one.traceback)
            for one in group.exceptions
        ],
        metadata=_plain(group.metadata),
        metrics=_finite(group.metrics),
        logs=list(group.logs),
    )


def not_finite(groups: Iterable[Any]) -> list[str]:
    """Sorted names of metrics of these groups and their trajectories that are infinite or NaN."""
    holders = [holder for group in groups for holder in (group, *group.trajectories)]
    return sorted(
        {
            name
            for holder in holders
            for name, value in holder.metrics.items()
            if not math.isfinite(value)
        }
    )


def left_out(names: list[str]) -> list[str]:
    """List with one sentence that metrics of these names were skipped; empty without names."""
    if not names:
        return []
    return [f"Metrics that are not finite were skipped: {', '.join(names)}."]


def _attempt(trajectory: Any) -> SentAttempt:
    main = _history(trajectory)
    return SentAttempt(
        messages_and_choices=main.messages_and_choices,
        tools=main.tools,
        additional_histories=[_history(one) for one in trajectory.additional_histories],
        reward=trajectory.reward if math.isfinite(trajectory.reward) else None,
        initial_policy_version=trajectory.initial_policy_version,
        metrics=_finite(trajectory.metrics),
        metadata=_plain(trajectory.metadata),
        logs=list(trajectory.logs),
    )


def _history(history: Any) -> SentHistory:
    items = [_item(one) for one in history.messages_and_choices]
    return SentHistory(messages_and_choices=items, tools=_plain(list(history.tools or [])))


def _item(item: Any) -> dict[str, Any]:
    data = item.model_dump(mode="json") if isinstance(item, BaseModel) else dict(item)
    if CHOICE_ID in data:
        data.pop("logprobs", None)
    plain: dict[str, Any] = _plain(data)
    return plain


def _finite(metrics: Mapping[str, Any]) -> dict[str, float]:
    figures = {name: float(value) for name, value in metrics.items()}
    return {name: value for name, value in figures.items() if math.isfinite(value)}


def _plain(value: Any) -> Any:
    """Return a JSON-compatible copy; models become their JSON, other objects a string."""

    def words(thing: Any) -> Any:
        return thing.model_dump(mode="json") if isinstance(thing, BaseModel) else str(thing)

    return json.loads(json.dumps(value, default=words))
