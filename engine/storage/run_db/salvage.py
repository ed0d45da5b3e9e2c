"""Reading of a damaged run.db, table by table, from a copy; damage ends a table, never raises."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import apsw

from engine.protocol.events.checkpoints import CheckpointDropped, CheckpointSaved
from engine.protocol.events.run import (
    CallClosed,
    CallOpened,
    Event,
    GroupJudged,
    GroupLabelled,
    GroupScored,
    RunStarted,
    StepStarted,
    TrajectoryRecorded,
    UnknownEvent,
    decode,
    encode,
)
from engine.protocol.problems import StoreError
from engine.protocol.records.runs import (
    Checkpoint,
    GroupSummary,
    RunSpec,
    Trajectory,
    TrajectorySummary,
)
from engine.storage.run_db.packed import unpack_record

Row = tuple[object, ...]
UNREADABLE = (apsw.Error, UnicodeDecodeError)
"""Exceptions raised by reading a damaged row, whose text need not be UTF-8."""
GIVEN_UP = 64
"""Number of unreadable places in a row after which a table is taken to end."""


@dataclass
class ReadableEvents:
    """Events from the first to the last before any damage, and the state they leave behind."""

    bodies: list[str] = field(default_factory=list)
    events: list[Event | UnknownEvent] = field(default_factory=list)
    broken: bool = False
    """Whether there was something after the last event."""

    @property
    def seq(self) -> int:
        return len(self.bodies)

    def until(self, seq: int) -> "ReadableEvents":
        """The events up to `seq`."""
        return ReadableEvents(self.bodies[:seq], self.events[:seq], True)

    def rollouts(self) -> dict[str, "TrajectoryState"]:
        """State of each trajectory by the events, by id, in the order of their rows."""
        found: dict[str, TrajectoryState] = {}
        for event in self.events:
            match event:
                case TrajectoryRecorded():
                    found.pop(event.trajectory.id, None)
                    found[event.trajectory.id] = TrajectoryState(event.trajectory)
                case GroupJudged():
                    _retell(found, event.trajectories)
                case GroupLabelled():
                    _retell(found, event.trajectories)
                    _score(found, event.group)
                case GroupScored():
                    _score(found, event.group)
        return found

    def groups(self) -> dict[tuple[str, int, int], GroupSummary]:
        scored = (e.group for e in self.events if isinstance(e, GroupScored | GroupLabelled))
        return {(group.split, group.step, group.group): group for group in scored}

    def labelled(self) -> list[GroupLabelled]:
        return [event for event in self.events if isinstance(event, GroupLabelled)]

    def checkpoints(self) -> dict[int, Checkpoint]:
        found: dict[int, Checkpoint] = {}
        for event in self.events:
            if isinstance(event, CheckpointSaved):
                found[event.checkpoint.step] = event.checkpoint
            elif isinstance(event, CheckpointDropped):
                found.pop(event.step, None)
        return found

    def costs(self) -> dict[str, list[tuple[str, float]]]:
        """(judge, cost in USD) of the attempts at each question by its key; the highest possible
        cost where no answer came back."""
        found: dict[str, list[tuple[str, float]]] = {}
        waiting: dict[str, int] = {}
        for event in self.events:
            if isinstance(event, CallOpened):
                found.setdefault(event.key, []).insert(0, (event.judge, event.most_usd))
                waiting[event.key] = waiting.get(event.key, 0) + 1
            elif isinstance(event, CallClosed) and waiting.get(event.key):
                waiting[event.key] -= 1
                found[event.key].pop(0)
                found[event.key].append((event.judge, event.usage.cost_usd))
        return found

    def begin_of(self, step: int) -> int:
        """Number of the last event before a step was started."""
        begun = (e for e in self.events if isinstance(e, StepStarted) and e.step >= step)
        first = next(begun, None)
        return (first.seq or 1) - 1 if first else self.seq


@dataclass
class TrajectoryState:
    """Latest state of one trajectory by the events."""

    summary: TrajectorySummary
    advantage: float | None = None
    """Advantage in the column of the row; the one in the summary follows the last verdict or
    label."""

    def fits(self, stored: Trajectory) -> bool:
        """Whether a stored trajectory is this rollout, and not a later one with its id."""
        return all(getattr(stored, name) == getattr(self.summary, name) for name in UNCHANGED)


UNCHANGED = ("scenario_id", "turns", "sampled_tokens", "truncated", "duration_s")
"""Fields of a trajectory that no verdict or label changes."""


def _retell(found: dict[str, TrajectoryState], trajectories: list[TrajectorySummary]) -> None:
    for one in trajectories:
        if told := found.get(one.id):
            told.summary = one.model_copy(update={"advantage": None})


def _score(found: dict[str, TrajectoryState], group: GroupSummary) -> None:
    place = (group.split, group.step, group.group)
    for told in found.values():
        one = told.summary
        if (one.split, one.step, one.group) == place and one.index < len(group.advantages):
            told.advantage = group.advantages[one.index]
            told.summary = one.model_copy(update={"advantage": told.advantage})


def readable_events(db: apsw.Connection, spec: RunSpec | None = None) -> ReadableEvents:
    """Events 1, 2, 3 … up to the first that is missing, invalid or has another number.

    The first one says how the run began: where it cannot be read, `spec` says it.
    """
    found = ReadableEvents()
    for number in count(1):
        body = _row(db, "SELECT body FROM events WHERE seq = ?", (number,))
        event = _event(number, body)
        if event is None and number == 1 and spec and _more(db, 1):
            started = RunStarted(run_id=spec.id, seq=1, at=spec.started_at, spec=spec)
            event, body = started, (encode(started),)
        if event is None or body is None:
            found.broken = body is not None or _more(db, number)
            return found
        found.bodies.append(str(body[0]))
        found.events.append(event)
    raise AssertionError("counting does not end")


def _event(number: int, body: Row | None) -> Event | UnknownEvent | None:
    try:
        event = decode(str(body[0])) if body else None
    except (ValueError, RecursionError):
        return None
    return event if event and event.seq == number else None


def trajectories(db: apsw.Connection) -> dict[str, Trajectory]:
    """Whole trajectories whose row can be read, by id."""
    found = {}
    for row in rows_by_rowid(db, "SELECT number, id, body FROM trajectories NOT INDEXED", "number"):
        try:
            found[str(row[1])] = unpack_record(Trajectory, row[2])
        except StoreError:
            continue
    return found


def rows_by_rowid(db: apsw.Connection, select: str, key: str) -> Iterator[Row]:
    """Rows of a table by its rowid; unreadable ones are left out.

    Behind a row that cannot be read single rows are tried, at growing distances.
    """
    last, missed = 0, 0
    while missed < GIVEN_UP:
        sql = f"{select} WHERE {key} > ? ORDER BY {key} LIMIT 1"
        try:
            rows = list(db.execute(sql, (last,)))
        except UNREADABLE:
            missed += 1
            last += 1 + missed**2 // 4
            if (row := _row(db, f"{select} WHERE {key} = ?", (last,))) is not None:
                yield row
            continue
        if not rows or not isinstance(number := rows[0][0], int) or number <= last:
            return
        missed, last = 0, number
        yield rows[0]


def rows_until_error(db: apsw.Connection, select: str) -> Iterator[Row]:
    """Rows of a query up to the first that cannot be read."""
    try:
        yield from db.execute(select)
    except UNREADABLE:
        return


def _row(db: apsw.Connection, sql: str, values: Row) -> Row | None:
    try:
        return next(iter(db.execute(sql, values)), None)  # type: ignore[arg-type]
    except UNREADABLE:
        return None


def _more(db: apsw.Connection, number: int) -> bool:
    """Whether a row from `number` on is there or cannot be read."""
    try:
        return bool(list(db.execute("SELECT 1 FROM events WHERE seq >= ? LIMIT 1", (number,))))
    except apsw.SQLError:  # there is no such table
        return False
    except apsw.Error:
        return True
