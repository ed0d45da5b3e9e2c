"""Single writer of a run.db: a thread, a queue, one transaction for everything queued (group
commit).

`acknowledged` means committed with synchronous=FULL: the awaiting coroutine continues only after
COMMIT. The `seq` of an event is assigned inside the transaction that stores its data.
"""

import asyncio
import contextlib
import queue
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import apsw

from engine.protocol.base import BaseEvent
from engine.protocol.events.checkpoints import CheckpointDropped, CheckpointSaved
from engine.protocol.events.run import (
    CallClosed,
    CallOpened,
    GroupJudged,
    GroupLabelled,
    GroupScored,
    TrajectoryRecorded,
    encode,
)
from engine.protocol.problems import Problem, StoreError
from engine.protocol.records.judging import Call, Verdict
from engine.protocol.records.labels import Label
from engine.protocol.records.runs import Checkpoint, GroupSummary, Trajectory, TrajectorySummary
from engine.storage.run_db.facts import facts_of, search_text_of
from engine.storage.run_db.schema import open_writer

MOST_PER_COMMIT = 500
CLOSING_MS = 500
"""Maximum wait for other readers when closing writes the WAL into the file."""

Statement = tuple[str, tuple[object, ...]]


SEQ = object()
"""Placeholder in the values of a statement for the `seq` of the event stored with it."""


@dataclass(frozen=True)
class Write:
    """An event and the rows that belong to it, stored in one transaction."""

    event: BaseEvent
    statements: tuple[Statement, ...] = ()


class RunWriter:
    """Owner of the writing connection. Its methods return the stored event after COMMIT."""

    def __init__(
        self, file: Path, run_id: str, on_committed: Callable[[], None] = lambda: None
    ) -> None:
        self._run_id = run_id
        self._db = open_writer(file)
        self._seq = int(self._db.execute("SELECT coalesce(max(seq), 0) FROM events").get)
        self._on_committed = on_committed
        self._queue: queue.SimpleQueue[tuple[Write, Future[BaseEvent]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="run.db writer", daemon=True)
        self._thread.start()

    @property
    def seq(self) -> int:
        """`seq` of the last committed event."""
        return self._seq

    async def say(self, event: BaseEvent) -> BaseEvent:
        """Store an event that changes no other table."""
        return await self._write(Write(event))

    async def add_trajectory(self, trajectory: Trajectory) -> BaseEvent:
        """Store a finished rollout; replaces one with the same id."""
        summary = summary_of(trajectory)
        event = TrajectoryRecorded(trajectory=summary)
        return await self._write(Write(event, trajectory_rows(trajectory, summary)))

    async def add_group(self, group: GroupSummary) -> BaseEvent:
        """Store a scored group, and the advantages of its trajectories."""
        return await self._write(Write(GroupScored(group=group), group_rows(group)))

    async def open_call(
        self, call_id: str, key: str, judge: str, most_usd: float, attempt: str = ""
    ) -> BaseEvent:
        """Store a model call at its maximum cost, before it is sent. `key` is the cache key of the
        prompt, `judge` the model, `attempt` the trajectory id if a rollout makes the call."""
        row = (
            "INSERT INTO calls(id, key, judge, answered, cost) VALUES (?, ?, ?, 0, ?)",
            (call_id, key, judge, most_usd),
        )
        event = CallOpened(key=key, judge=judge, most_usd=most_usd, attempt=attempt)
        return await self._write(Write(event, (row,)))

    async def close_call(self, call_id: str, call: Call, attempt: str = "") -> BaseEvent:
        """Store answer or problem and actual cost of the model call opened as `call_id`. `attempt`
        as in `open_call`."""
        body = zlib.compress(call.model_dump_json().encode(), 1)
        row = (
            "UPDATE calls SET answered = ?, cost = ?, body = ? WHERE id = ?",
            (int(call.problem is None), call.usage.cost_usd, body, call_id),
        )
        event = CallClosed(
            key=call.key,
            judge=call.judge,
            usage=call.usage,
            seconds=call.seconds,
            problem=call.problem,
            attempt=attempt,
        )
        return await self._write(Write(event, (row,)))

    async def add_verdicts(
        self, verdicts: list[Verdict], group: list[Trajectory], rewarded: bool
    ) -> BaseEvent:
        """Store verdicts on one group. If they changed its rewards (`rewarded`), also update its
        trajectories."""
        first, now = group[0], time.time()
        trajectories = group if rewarded else []
        rows: list[Statement] = [
            (
                "INSERT OR REPLACE INTO verdicts(trajectory_id, judge, rubric, at, body) "
                "VALUES (?, ?, ?, ?, ?)",
                (v.trajectory_id, v.judge, v.rubric, now, v.model_dump_json()),
            )
            for v in verdicts
        ]
        summaries = [summary_of(trajectory) for trajectory in trajectories]
        for trajectory in trajectories:
            rows += updated_rows(trajectory)
        event = GroupJudged(
            split=first.split, step=first.step, group=first.group, trajectories=summaries
        )
        return await self._write(Write(event, tuple(rows)))

    async def add_label(
        self, label: Label, group: GroupSummary, trajectories: list[Trajectory]
    ) -> BaseEvent:
        """Store a label, and its group and trajectories with the rewards that result from it."""
        row: Statement = (
            "INSERT INTO labels(id, seq, split, step, grp, body) VALUES (?, ?, ?, ?, ?, ?)",
            (label.id, SEQ, label.split, label.step, label.group, label.model_dump_json()),
        )
        return await self._write(_relabelled(label, False, row, group, trajectories))

    async def undo_label(
        self, label: Label, group: GroupSummary, trajectories: list[Trajectory]
    ) -> BaseEvent:
        """Mark a label as undone, and store group and trajectories with the rewards without it."""
        row: Statement = ("UPDATE labels SET undone = ? WHERE id = ?", (SEQ, label.id))
        return await self._write(_relabelled(label, True, row, group, trajectories))

    async def add_checkpoint(self, checkpoint: Checkpoint) -> BaseEvent:
        row = (
            "INSERT OR REPLACE INTO checkpoints(step, record) VALUES (?, ?)",
            (checkpoint.step, checkpoint.model_dump_json()),
        )
        return await self._write(Write(CheckpointSaved(checkpoint=checkpoint), (row,)))

    async def drop_checkpoint(
        self, checkpoint: Checkpoint, by: Literal["rule", "person", "damage"]
    ) -> BaseEvent:
        """Delete a checkpoint from the database, storing why (`by`); the caller deletes files."""
        row = ("DELETE FROM checkpoints WHERE step = ?", (checkpoint.step,))
        event = CheckpointDropped(step=checkpoint.step, bytes=checkpoint.bytes, by=by)
        return await self._write(Write(event, (row,)))

    def close(self) -> None:
        """Commit what is queued, write the WAL into the file and close it, so that a copy of this
        one file is the whole run. Close all readers first."""
        self._queue.put(None)
        self._thread.join()
        self._db.set_busy_timeout(CLOSING_MS)
        with contextlib.suppress(apsw.FullError, apsw.IOError, apsw.BusyError):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # else the WAL stays, and is whole
        self._db.close()

    async def _write(self, write: Write) -> BaseEvent:
        future: Future[BaseEvent] = Future()
        self._queue.put((write, future))
        return await asyncio.wrap_future(future)

    def _serve(self) -> None:
        while (first := self._queue.get()) is not None:
            batch = [first]
            while len(batch) < MOST_PER_COMMIT and not self._queue.empty():
                item = self._queue.get()
                if item is None:
                    self._queue.put(None)
                    break
                batch.append(item)
            self._commit_all([item for item in batch if item[1].set_running_or_notify_cancel()])

    def _commit_all(self, batch: list[tuple[Write, Future[BaseEvent]]]) -> None:
        """Commit writes in one transaction, or one by one if one of them is invalid."""
        seq, stored = self._seq, []
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for write, _ in batch:
                seq += 1
                stored.append(self._store(write, seq))
            self._db.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever waits must hear of it
            if self._db.in_transaction:  # a full disk has rolled back by itself
                self._db.execute("ROLLBACK")
            if len(batch) > 1 and not isinstance(error, apsw.Error):
                for item in batch:
                    self._commit_all([item])
                return
            problem = _write_problem(error)
            for _, future in batch:
                future.set_exception(StoreError(problem))
            return
        self._seq = seq
        for (_, future), event in zip(batch, stored, strict=True):
            future.set_result(event)
        self._on_committed()

    def _store(self, write: Write, seq: int) -> BaseEvent:
        event = write.event.model_copy(
            update={"run_id": self._run_id, "seq": seq, "at": time.time()}
        )
        for sql, values in write.statements:
            known = tuple(seq if value is SEQ else value for value in values)
            self._db.execute(sql, known)  # type: ignore[arg-type]
        self._db.execute(
            "INSERT INTO events(seq, kind, body) VALUES (?, ?, ?)",
            (seq, event.kind, encode(event)),  # type: ignore[attr-defined]
        )
        return event


def _relabelled(
    label: Label, undone: bool, row: Statement, group: GroupSummary, trajectories: list[Trajectory]
) -> Write:
    summaries = [
        summary_of(one).model_copy(update={"advantage": advantage})
        for one, advantage in zip(trajectories, group.advantages, strict=True)
    ]
    event = GroupLabelled(label=label, undone=undone, group=group, trajectories=summaries)
    rows = [row]
    for trajectory in trajectories:
        rows += updated_rows(trajectory)
    return Write(event, (*rows, *group_rows(group)))


def group_rows(group: GroupSummary) -> tuple[Statement, ...]:
    """Return statements that store a group and the advantages of its trajectories."""
    place = (group.split, group.step, group.group)
    rows: list[Statement] = [
        (
            "INSERT OR REPLACE INTO groups(split, step, grp, signal, summary) "
            "VALUES (?, ?, ?, ?, ?)",
            (*place, int(group.signal), group.model_dump_json()),
        )
    ]
    rows += [
        (
            "UPDATE trajectories SET advantage = ?, summary = json_set(summary, '$.advantage', ?) "
            "WHERE split = ? AND step = ? AND grp = ? AND idx = ?",
            (value, value, *place, index),
        )
        for index, value in enumerate(group.advantages)
    ]
    return tuple(rows)


def summary_of(trajectory: Trajectory) -> TrajectorySummary:
    names = set(TrajectorySummary.model_fields)
    return TrajectorySummary(**{name: getattr(trajectory, name) for name in names})


def trajectory_rows(trajectory: Trajectory, summary: TrajectorySummary) -> tuple[Statement, ...]:
    """SQL statements that store a trajectory, its `summary` and search entry, or replace them."""
    t = trajectory
    values = (t.id, t.split, t.step, t.group, t.index, t.scenario_id, t.title, t.reward)
    more = (t.advantage, t.turns, t.sampled_tokens, int(t.truncated), int(bool(t.labels)))
    facts = facts_of(t).model_dump_json()
    body = zlib.compress(t.model_dump_json().encode(), 1)
    return (
        (
            "DELETE FROM transcripts WHERE rowid = (SELECT number FROM trajectories WHERE id = ?)",
            (t.id,),
        ),
        ("DELETE FROM trajectories WHERE id = ?", (t.id,)),
        (
            "INSERT INTO trajectories(id, split, step, grp, idx, scenario_id, title, reward, "
            "advantage, turns, tokens, truncated, labelled, marked, duration, facts, summary, "
            "body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*values, *more, int(t.marked), t.duration_s, facts, summary.model_dump_json(), body),
        ),
        (
            "INSERT INTO transcripts(rowid, prompt, answer, call, about) "
            "VALUES (last_insert_rowid(), ?, ?, ?, ?)",
            search_text_of(trajectory),
        ),
    )


def updated_rows(trajectory: Trajectory) -> list[Statement]:
    """Return statements that update a trajectory after a new verdict or label. The row keeps its
    place, and its search entry is rebuilt. The advantage is stored with the group instead, so that
    the same verdict always leaves the same bytes."""
    trajectory = trajectory.model_copy(update={"advantage": None})
    summary = summary_of(trajectory)
    body = zlib.compress(trajectory.model_dump_json().encode(), 1)
    values = (trajectory.reward, int(bool(trajectory.labels)), summary.model_dump_json(), body)
    sql = "UPDATE trajectories SET reward = ?, labelled = ?, summary = ?, body = ? WHERE id = ?"
    entry = (
        "INSERT OR REPLACE INTO transcripts(rowid, prompt, answer, call, about) "
        "SELECT number, ?, ?, ?, ? FROM trajectories WHERE id = ?"
    )
    text = search_text_of(trajectory)
    return [(sql, (*values, trajectory.id)), (entry, (*text, trajectory.id))]


def _write_problem(error: Exception) -> Problem:
    if isinstance(error, apsw.FullError | apsw.IOError):
        return Problem(
            code="store.disk_full",
            message="The run could not be written: the disk is full or does not respond.",
            hint="Free some space, then resume the run; everything stored so far is kept.",
            detail=str(error),
        )
    return Problem(code="store.not_written", message=f"The run could not be written: {error}.")
