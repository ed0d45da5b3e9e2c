"""Batches of imported trajectories: complete groups in the order of training."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from engine.protocol.problems import ConfigError, Problem
from engine.protocol.records.runs import Message, Split, Trajectory
from engine.runtime.text import replace_surrogates

TITLE_CHARS = 80
WRONG = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError, OverflowError)
"""Exceptions raised by reading a value of the wrong shape."""

UNREWARDED = Problem(
    code="judge.unrewarded",
    message="The source has no reward for this trajectory.",
    hint="Say with a label how good it is.",
)
"""Among those with which an attempt may still be judged and labelled."""


class TrajectoryBatch(NamedTuple):
    """The groups of one split and step."""

    split: Split
    step: int
    groups: list[list[Trajectory]]
    dropped: int = 0
    """Metrics that were not finite."""


class Source(NamedTuple):
    """Source of trajectories. `lots` reads while it is iterated; close it in any case."""

    name: str
    last: int
    """The last training step."""
    lots: Callable[[], Iterator[TrajectoryBatch]]
    notes: tuple[str, ...] = ()
    """Skipped content, as sentences."""


def load_json(text: str) -> Any:
    """Half a surrogate pair, as a model that was cut off leaves it, becomes U+FFFD: it could not be
    stored."""
    return replace_surrogates(json.loads(text))


def id_of(split: Split, step: int, group: int, index: int) -> str:
    """As the attempts of our own runs are called."""
    return f"{split[0]}{step:05d}-{group:03d}-{index:03d}"


def title_of(messages: list[Message], otherwise: str) -> str:
    """The beginning of what was asked."""
    asked = next((message.content for message in messages if message.role == "user"), "")
    return " ".join(asked.split())[:TITLE_CHARS] or otherwise


def figures_of(metrics: Mapping[str, Any]) -> tuple[dict[str, float], int]:
    """The finite ones, and how many were not. Raises ValueError where one is no number."""
    figures = {}
    for name, value in metrics.items():
        if not isinstance(value, int | float):
            raise ValueError(f"the metric {name} is no number: {value!r:.80}")
        figures[name] = float(value)
    finite = {name: value for name, value in figures.items() if math.isfinite(value)}
    return finite, len(figures) - len(finite)


def as_scored(one: Trajectory) -> Trajectory:
    """With the reason where it has no reward: nobody is about to give it one."""
    problem = one.problem or (UNREWARDED if one.reward is None else None)
    return one.model_copy(update={"awaits_judge": False, "problem": problem})


def as_awaiting_judge(one: Trajectory) -> Trajectory:
    """Trajectory without a reward from its source, ready for a judge."""
    judges = UNREWARDED.code.partition(".")[0]  # asked and not answered, it can be asked again
    unrewarded = one.problem is not None and one.problem.code.partition(".")[0] == judges
    return one.model_copy(update={"awaits_judge": True, "problem": None}) if unrewarded else one


def empty_source(where: Path, hint: str) -> ConfigError:
    """The source is readable and empty."""
    return ConfigError.of("attempts.none", "The file has no trajectories.", hint, where=str(where))
