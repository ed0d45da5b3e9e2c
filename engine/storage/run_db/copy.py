"""Copy of a run.db as it was after a step, for a branch.

The copy is consistent although the run may be active: trajectories, groups, verdicts, labels and
their events, numbered without gaps. Later labels on earlier steps are copied too. Judge answers are
copied at no cost, because the branch has not paid for them.
"""

import contextlib
from pathlib import Path

import apsw

from engine.storage.run_db.schema import open_reader, open_writer

COPIED = (
    "warmup.finished",
    "step.started",
    "step.extended",
    "trajectory.recorded",
    "group.judged",
    "group.scored",
    "group.labelled",
    "canary.judged",
    "batch.closed",
    "step.finished",
    "validation.finished",
    "diagnosis.changed",
    "alerts.changed",
    "call.closed",
)
"""Kinds of events that are copied: about steps and judge calls, not about the process."""

STEP = """coalesce(
    json_extract(body, '$.step'), json_extract(body, '$.trajectory.step'),
    json_extract(body, '$.label.step'), json_extract(body, '$.group.step'), 0
)"""


def copy_until(source: Path, target: Path, run_id: str, step: int, rubrics: bool = False) -> None:
    """Copy the run.db `source`, up to and including `step`, to the new file `target` as the
    database of run `run_id`. `rubrics`: also copy changes of the rubric. Raises StoreError if the
    source cannot be read, apsw.Error if the disk is full."""
    with contextlib.closing(open_reader(source)) as db:
        db.execute("VACUUM INTO ?", (str(target),))
    with contextlib.closing(open_writer(target)) as db, db:
        _drop_rows(db, step)
        _renumber(db, run_id, step, (*COPIED, "rubric.changed") if rubrics else COPIED)
        _give_answers(db)


def _drop_rows(db: apsw.Connection, step: int) -> None:
    later = "SELECT number FROM trajectories WHERE step > ?"
    db.execute(f"DELETE FROM transcripts WHERE rowid IN ({later})", (step,))
    db.execute(
        "DELETE FROM verdicts WHERE trajectory_id IN (SELECT id FROM trajectories WHERE step > ?)",
        (step,),
    )
    for table in ("trajectories", "groups", "labels"):
        db.execute(f"DELETE FROM {table} WHERE step > ?", (step,))
    db.execute("DELETE FROM checkpoints")


def _give_answers(db: apsw.Connection) -> None:
    """Set the cost of copied judge calls to 0, and delete calls that were never closed."""
    db.execute("DELETE FROM calls WHERE body IS NULL")
    db.execute("UPDATE calls SET cost = 0")
    db.execute(
        "UPDATE events SET body = json_set(body, '$.usage.cost_usd', 0.0) "
        "WHERE kind = 'call.closed'"
    )


def _renumber(db: apsw.Connection, run_id: str, step: int, kinds: tuple[str, ...]) -> None:
    """Keep events of these kinds up to the step, and renumber them, also in the labels."""
    marks = ", ".join("?" * len(kinds))
    db.execute(
        "CREATE TEMP TABLE kept AS SELECT seq AS old, row_number() OVER (ORDER BY seq) AS seq, "
        f"kind, body FROM events WHERE kind IN ({marks}) AND {STEP} <= ?",
        (*kinds, step),
    )
    db.execute("DELETE FROM events")
    db.execute(
        "INSERT INTO events(seq, kind, body) SELECT seq, kind, "
        "json_set(body, '$.seq', seq, '$.run_id', ?) FROM kept ORDER BY seq",
        (run_id,),
    )
    for column in ("seq", "undone"):
        db.execute(
            f"UPDATE labels SET {column} = (SELECT kept.seq FROM kept WHERE old = labels.{column}) "
            f"WHERE {column} IS NOT NULL"
        )
    db.execute("DROP TABLE kept")
