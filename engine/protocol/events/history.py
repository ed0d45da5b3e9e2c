"""A long stretch of a run's past in one piece, for whoever only folds events into a state.

Of a million events most say that one more attempt, question or line of a log is there. Those are
counted where they are stored; the others come as they are. It stands for all events from `first` to
`seq`, and only readers that have asked for it get it.
"""

from functools import cached_property
from typing import Literal

from engine.protocol.events.base import BaseEvent
from engine.protocol.events.run import Event, UnknownEvent, decode

COUNTED = (
    "trajectory.recorded",
    "group.judged",
    "group.scored",
    "call.opened",
    "call.closed",
    "log.written",
)
"""Kinds that are summed up; of the last, the newest lines come all the same."""

LINES_KEPT = 2000


class History(BaseEvent):
    """All that happened from `first` to `seq`; behind it a step begins, so what only the step under
    way needs is left out."""

    kind: Literal["history.condensed"] = "history.condensed"
    first: int
    lines: list[str]
    """Events that are not counted, as they are stored, in order."""
    trajectories: int = 0
    """Attempts recorded."""
    unscored: int = 0
    """Of them without a reward when they were compared, or at once where nobody compares."""
    recorded: tuple[str, ...] = ()
    """Their ids."""
    awaiting: tuple[str, ...] = ()
    """Ids of those that still wait for their judge at the end."""
    settled: tuple[tuple[str, bool, bool], ...] = ()
    """Attempts recorded before `first` that were judged: (id, still waits, without a reward)."""
    judge_calls: int = 0
    judge_failed: int = 0
    judge_usd: float = 0.0
    attempts_usd: float = 0.0
    """Of questions that attempts have put to providers' models."""
    logged: int = 0
    """Lines of the log that are left out."""

    @cached_property
    def events(self) -> list[Event | UnknownEvent]:
        """Raises ValueError where a line is no event."""
        return [decode(line) for line in self.lines]


MARK = '{"kind":"history.condensed"'
"""How its line begins."""


def encode_history(history: History) -> str:
    """One line of JSON, the kind in front."""
    return MARK + "," + history.model_dump_json(exclude={"kind"})[1:]
