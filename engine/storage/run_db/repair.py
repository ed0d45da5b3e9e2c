"""Repair of a damaged run: its events up to the first unreadable one, and their rows.

The damaged files are copied, read, and kept beside the repaired ones in `damaged/`. Groups, labels
and checkpoints are rebuilt from the kept events. Transcripts, verdicts and judge answers are copied
if readable. For a lost transcript, a row without one is made from the events. Everything after the
damage is dropped: the repaired run has the state of that moment, and a last event that records the
repair.
"""

import contextlib
import shutil
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import UnionType

import apsw

from engine.protocol.events.run import LogWritten, RunQueued, RunStarted, encode
from engine.protocol.problems import StoreError
from engine.protocol.records.judging import Call, Verdict
from engine.protocol.records.runs import RunSpec, Trajectory, TrajectorySummary
from engine.runtime.files import move_into_place
from engine.storage.run_db import salvage
from engine.storage.run_db.packed import unpack_record
from engine.storage.run_db.salvage import UNREADABLE, ReadableEvents, TrajectoryState
from engine.storage.run_db.schema import MOST_VALUE_BYTES, foreign_object, open_writer, refuse_newer
from engine.storage.run_db.writer import summary_of, trajectory_rows

KEPT = "damaged"
"""Subfolder of the run that keeps the damaged files."""
LOST = "The transcript of this rollout was damaged; a repair could not recover it."


@dataclass(frozen=True)
class Repaired:
    """Result of a repair: numbers of kept events and of lost transcripts."""

    events: int
    """Number of events kept; 0 where the database was not damaged."""
    broken: bool
    """Whether later events were lost."""
    transcripts: int
    """Number of rollouts that kept their reward but lost their transcript."""
    spec: RunSpec
    """Spec with which the run began, for a run.json that has to be rewritten."""

    @property
    def words(self) -> str:
        if not self.events:
            return "The settings were restored from the intact database."
        lost = "later ones were unreadable" if self.broken else "none lost"
        transcripts = f" Lost transcripts: {self.transcripts}." if self.transcripts else ""
        return f"Repaired. Events kept: {self.events}; {lost}.{transcripts}"


def repair_database(folder: Path, database: str, known: RunSpec | None) -> Repaired:
    """Replace the file `database` in the run folder by its readable part, unless it is undamaged
    (`events` of the result is 0). Nothing else may use the run meanwhile; old files move to
    `damaged/`. `known` is the spec in run.json, None if unreadable. Raises StoreError if nothing
    can be read, or a newer version wrote it."""
    scratch = Path(tempfile.mkdtemp(prefix="repairing-", dir=folder))
    try:
        copy, made = scratch / "copy.db", scratch / database
        for suffix in ("", "-wal"):
            if (file := folder / f"{database}{suffix}").is_file():
                shutil.copyfile(file, f"{copy}{suffix}")
        with contextlib.closing(_open_copy(copy, folder)) as db:
            spec = _spec_of(found := salvage.readable_events(db, known), folder)
            stored, found = _whole(db, found)
            lost = [id_ for id_ in found.rollouts() if id_ not in stored]
            if not found.broken and not lost and _is_whole(db):
                return Repaired(0, False, 0, spec)
            repaired = Repaired(found.seq, found.broken, len(lost), spec)
            with contextlib.closing(open_writer(made)) as target, target:
                _write(target, db, found, stored, repaired)
        _swap(folder, database, made)
        return repaired
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _open_copy(copy: Path, folder: Path) -> apsw.Connection:
    try:
        db = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READWRITE)
        db.execute("PRAGMA cell_size_check = ON")
        db.execute("SELECT count(*) FROM sqlite_schema")
        version = int(db.execute("PRAGMA user_version").get)
        db.limit(apsw.SQLITE_LIMIT_LENGTH, MOST_VALUE_BYTES)
        if name := foreign_object(db):  # a view or trigger would be executed by reading
            db.close()
            raise _nothing(folder, f"{name[:60]!a} does not belong in a run's database")
    except UNREADABLE as error:
        raise _nothing(folder, str(error)) from error
    refuse_newer(version, folder)
    return db


def _spec_of(found: ReadableEvents, folder: Path) -> RunSpec:
    specs = (e.spec for e in found.events if isinstance(e, RunStarted | RunQueued))
    spec = next(specs, None)
    if spec is None:
        raise _nothing(folder, "its first events are unreadable")
    return spec


def _nothing(folder: Path, why: str) -> StoreError:
    return StoreError.of(
        "repair.nothing",
        f"Nothing of this run can be recovered: {why}.",
        "Delete the run; to keep its checkpoints, copy their folders first.",
        where=str(folder),
    )


def _whole(
    db: apsw.Connection, found: ReadableEvents
) -> tuple[dict[str, Trajectory], ReadableEvents]:
    """Return the stored trajectories that match the events, and the events to keep: those before
    the first step that would need a lost transcript for training, and is sampled again."""
    states = found.rollouts()
    stored = salvage.trajectories(db)
    if states:
        stored = {id_: t for id_, t in stored.items() if id_ in states and states[id_].fits(t)}
    saved = max(found.checkpoints(), default=0)
    again = [
        one.summary.step
        for id_, one in states.items()
        if one.summary.split == "train" and one.summary.step > saved and id_ not in stored
    ]
    return stored, found.until(found.begin_of(min(again))) if again else found


def _is_whole(db: apsw.Connection) -> bool:
    try:
        return bool(db.execute("PRAGMA integrity_check(1)").get == "ok")
    except UNREADABLE:
        return False


def _write(
    target: apsw.Connection,
    db: apsw.Connection,
    found: ReadableEvents,
    stored: dict[str, Trajectory],
    repaired: Repaired,
) -> None:
    for seq, (event, body) in enumerate(zip(found.events, found.bodies, strict=True), 1):
        _insert(target, "events(seq, kind, body)", (seq, event.kind, body))
    _write_trajectories(target, found, stored)
    for group in found.groups().values():
        place = (group.split, group.step, group.group)
        row = (*place, int(group.signal), group.model_dump_json())
        _insert(target, "groups(split, step, grp, signal, summary)", row)
    _write_labels(target, found)
    for step, checkpoint in found.checkpoints().items():
        values = (step, checkpoint.model_dump_json())
        _insert(target, "checkpoints(step, record)", values)
    _write_calls(target, db, found)
    _write_verdicts(target, db, found)
    seq, now = found.seq + 1, time.time()
    notice = LogWritten(level="warning", source="store", text=repaired.words)
    notice = notice.model_copy(update={"run_id": repaired.spec.id, "seq": seq, "at": now})
    _insert(target, "events(seq, kind, body)", (seq, notice.kind, encode(notice)))


def _write_trajectories(
    target: apsw.Connection, found: ReadableEvents, stored: dict[str, Trajectory]
) -> None:
    """Write trajectories with the state that the events give them. Imported runs have no such
    events: their trajectories are written as stored."""
    rollouts = found.rollouts() or {
        id_: TrajectoryState(summary_of(one), one.advantage) for id_, one in stored.items()
    }
    for id_, state in rollouts.items():
        base = stored.get(id_) or Trajectory(**state.summary.model_dump(), output=LOST)
        values = {name: getattr(state.summary, name) for name in TrajectorySummary.model_fields}
        one = base.model_copy(update={**values, "advantage": None})
        for sql, row in trajectory_rows(one, state.summary):
            target.execute(sql, row)  # type: ignore[arg-type]
        sql = "UPDATE trajectories SET advantage = ? WHERE id = ?"
        target.execute(sql, (state.advantage, id_))


def _write_labels(target: apsw.Connection, found: ReadableEvents) -> None:
    for event in found.labelled():
        label = event.label
        if event.undone:
            target.execute("UPDATE labels SET undone = ? WHERE id = ?", (event.seq, label.id))
            continue
        values = (
            label.id,
            event.seq,
            label.split,
            label.step,
            label.group,
            label.model_dump_json(),
        )
        _insert(target, "labels(id, seq, split, step, grp, body)", values)


def _write_calls(target: apsw.Connection, db: apsw.Connection, found: ReadableEvents) -> None:
    """Write readable calls, and the cost of all others, because that money was spent."""
    costs = found.costs()
    select = "SELECT rowid, id, key, judge, answered, cost, body FROM calls NOT INDEXED"
    for row in salvage.rows_by_rowid(db, select, "rowid"):
        if not has_column_types(row[1:], str, str, str, int, float, bytes | None):
            continue
        tries, known = costs.get(str(row[2]), []), (row[3], row[5])
        if known in tries:  # else it was answered behind the damage: both are counted
            tries.remove(known)  # type: ignore[arg-type]
        answer = (int(str(row[4])), row[5], row[6])
        if row[6] is not None and not _is_call(row[6]):
            answer = (0, row[5], None)
        _insert(target, "calls(id, key, judge, answered, cost, body)", (*row[1:4], *answer))
    for key, tries in costs.items():
        for judge, cost in tries:
            values = (uuid.uuid4().hex, key, judge, 0, cost)
            _insert(target, "calls(id, key, judge, answered, cost)", values)


def _write_verdicts(target: apsw.Connection, db: apsw.Connection, found: ReadableEvents) -> None:
    kept, last = set(found.rollouts()), found.events[-1].at
    for row in salvage.rows_until_error(
        db, "SELECT trajectory_id, judge, rubric, at, body FROM verdicts"
    ):
        known = has_column_types(row, str, str, str, float, str) and row[0] in kept
        if known and float(str(row[3])) <= last and _is_verdict(str(row[4])):
            _insert(target, "verdicts(trajectory_id, judge, rubric, at, body)", row)


def has_column_types(row: tuple[object, ...], *kinds: type | UnionType) -> bool:
    """Whether the values of a row have these types, one per column."""
    return all(isinstance(value, kind) for value, kind in zip(row, kinds, strict=True))


def _is_call(body: object) -> bool:
    try:
        unpack_record(Call, body)
    except StoreError:
        return False
    return True


def _is_verdict(body: str) -> bool:
    try:
        Verdict.model_validate_json(body)
    except ValueError:
        return False
    return True


def _insert(target: apsw.Connection, into: str, values: tuple[object, ...]) -> None:
    marks = ", ".join("?" * len(values))
    target.execute(f"INSERT OR REPLACE INTO {into} VALUES ({marks})", values)  # type: ignore[arg-type]


def _swap(folder: Path, database: str, made: Path) -> None:
    """Move the damaged files to `damaged/`, and the repaired file into their place."""
    kept = folder / KEPT / time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    kept.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(apsw.Connection(str(made))) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for suffix in ("", "-wal", "-shm"):
        if (file := folder / f"{database}{suffix}").exists():
            file.replace(kept / file.name)
    move_into_place(made, folder / database)
