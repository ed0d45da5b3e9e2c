"""Reader of a damaged run.db, table by table, from a copy. Damage ends a table, never raises."""

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
"""Number of consecutive failed reads after which the rest of a table is given up."""


@dataclass
class ReadableEvents:
    """Events before any damage, and the state that follows from them."""

    bodies: list[str] = field(default_factory=list)
    events: list[Event | UnknownEvent] = field(default_factory=list)
    broken: bool = False
    """Whether anything was stored after the last of these events."""

    @property
    def seq(self) -> int:
        return len(self.bodies)

    def until(self, seq: int) -> "ReadableEvents":
        return ReadableEvents(self.bodies[:seq], self.events[:seq], True)

    def rollouts(self) -> dict[str, "TrajectoryState"]:
        """Return the state of each trajectory after these events, by id, in row order."""
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
        """Return (judge model, cost in USD) of all model calls, by the cache key of their prompt; a
        call whose outcome is not stored has its maximum cost."""
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
        """`seq` of the last event before the first start of `step` or a later step; that of the
        last readable event if no such step started."""
        starts = (e for e in self.events if isinstance(e, StepStarted) and e.step >= step)
        first = next(starts, None)
        return (first.seq or 1) - 1 if first else self.seq


@dataclass
class TrajectoryState:
    """State of a trajectory after the last event about it."""

    summary: TrajectorySummary
    advantage: float | None = None
    """Advantage for the row's column; the summary's may be cleared by a verdict or label."""

    def fits(self, stored: Trajectory) -> bool:
        """Whether the stored trajectory is of the same rollout, not of a repeated one with the same
        id."""
        return all(getattr(stored, name) == getattr(self.summary, name) for name in UNCHANGED)


UNCHANGED = ("scenario_id", "turns", "sampled_tokens", "truncated", "duration_s")
"""Fields of a trajectory that no verdict or label changes."""


def _retell(states: dict[str, TrajectoryState], trajectories: list[TrajectorySummary]) -> None:
    for one in trajectories:
        if state := states.get(one.id):
            state.summary = one.model_copy(update={"advantage": None})


def _score(states: dict[str, TrajectoryState], group: GroupSummary) -> None:
    place = (group.split, group.step, group.group)
    for state in states.values():
        one = state.summary
        if (one.split, one.step, one.group) == place and one.index < len(group.advantages):
            state.advantage = group.advantages[one.index]
            state.summary = one.model_copy(update={"advantage": state.advantage})


def readable_events(db: apsw.Connection, spec: RunSpec | None = None) -> ReadableEvents:
    """Return events 1, 2, 3 … up to the first that is missing, invalid or misnumbered. If the first
    one (the start of the run) is unreadable, it is rebuilt from `spec`."""
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
    found = {}
    for row in rows_by_rowid(db, "SELECT number, id, body FROM trajectories NOT INDEXED", "number"):
        try:
            found[str(row[1])] = unpack_record(Trajectory, row[2])
        except StoreError:
            continue
    return found


def rows_by_rowid(db: apsw.Connection, select: str, key: str) -> Iterator[Row]:
    """Yield the readable rows of a table in order of rowid. `select` is a query without WHERE whose
    first column, `key`, is the rowid. After an unreadable row, rows at growing distances are tried,
    until `GIVEN_UP` in sequence are unreadable."""
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
    """Yield the rows of the query `select` up to the first unreadable one, and end there without an
    error."""
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
    """Whether an event from `number` on exists, or cannot be read."""
    try:
        return bool(list(db.execute("SELECT 1 FROM events WHERE seq >= ? LIMIT 1", (number,))))
    except apsw.SQLError:  # there is no such table
        return False
    except apsw.Error:
        return True
