"""Condensed history: many consecutive events of a run, for readers that only fold events into a
state.

Most of a million events only report one more trajectory, model call or log line. They are counted
where they are stored; the other events are sent as they are. A history replaces all events from
`first` to `seq`, and is sent only to readers that ask for it.
"""

from functools import cached_property
from typing import Literal

from engine.protocol.base import BaseEvent
from engine.protocol.events.run import Event, UnknownEvent, decode

COUNTED = (
    "trajectory.recorded",
    "group.judged",
    "group.scored",
    "call.opened",
    "call.closed",
    "log.written",
)
"""Event kinds counted instead of sent; the newest `log.written` events are sent as well."""

LINES_KEPT = 2000


class History(BaseEvent):
    """Summary of all events from `first` to `seq`. It ends where a step begins, so data needed only
    by the current step is left out."""

    kind: Literal["history.condensed"] = "history.condensed"
    first: int
    lines: list[str]
    """Events that are not counted, as stored, in order."""
    trajectories: int = 0
    """Number of recorded trajectories."""
    unscored: int = 0
    """Number of recorded trajectories without a reward, after judging if there is a judge."""
    recorded: tuple[str, ...] = ()
    """Ids of the recorded trajectories."""
    awaiting: tuple[str, ...] = ()
    """Ids of trajectories that still wait for the judge at the end."""
    settled: tuple[tuple[str, bool, bool], ...] = ()
    """Trajectories recorded before `first` and judged since: (id, still waiting, unscored)."""
    judge_calls: int = 0
    judge_failed: int = 0
    judge_usd: float = 0.0
    attempts_usd: float = 0.0
    """Cost in US dollars of the calls of rollouts to models of providers."""
    logged: int = 0
    """Number of log lines that are left out."""

    @cached_property
    def events(self) -> list[Event | UnknownEvent]:
        """Events of `lines`, decoded. Raises ValueError if a line is not an event."""
        return [decode(line) for line in self.lines]

    def parts(self, most: int) -> "list[History]":
        """Split this history into consecutive ones with at most `most` events each, which have the
        same effect together. The counts (trajectories, calls, log lines) are in the last one
        only."""
        events, parts, first = self.events, list[History](), self.first
        for start in range(0, len(events), most):
            some = events[start : start + most]
            if start + most >= len(events):
                part = self.model_copy(update={"first": first, "lines": self.lines[start:]})
            else:
                seq = some[-1].seq
                assert seq is not None, "stored events have a sequence number"
                lines = self.lines[start : start + most]
                part = History(run_id=self.run_id, seq=seq, at=self.at, first=first, lines=lines)
                first = seq + 1
            part.__dict__["events"] = some  # decoded already
            parts.append(part)
        return parts or [self]


MARK = '{"kind":"history.condensed"'
"""Prefix of an encoded history."""


def encode_history(history: History) -> str:
    """Encode a history as one line of JSON with the kind first."""
    return MARK + "," + history.model_dump_json(exclude={"kind"})[1:]
