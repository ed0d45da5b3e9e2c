"""Schema of run.db, and connections to it. A database of a newer version is refused."""

import contextlib
import os
import re
import stat
from functools import cache
from pathlib import Path
from urllib.parse import quote

import apsw

from engine.protocol.problems import StoreError

VERSION = 1

TABLES = """
CREATE TABLE events(
    seq INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX by_kind ON events(kind, seq);

CREATE TABLE trajectories(
    number INTEGER PRIMARY KEY,           -- order of arrival
    id TEXT NOT NULL UNIQUE,
    split TEXT NOT NULL,
    step INTEGER NOT NULL,
    grp INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    scenario_id TEXT NOT NULL,
    title TEXT NOT NULL,
    reward REAL,                          -- NULL is unscored
    advantage REAL,
    turns INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    truncated INTEGER NOT NULL,
    labelled INTEGER NOT NULL,
    marked INTEGER NOT NULL,
    duration REAL NOT NULL,
    facts TEXT NOT NULL,                  -- TrajectoryFacts
    summary TEXT NOT NULL,                -- TrajectorySummary
    body BLOB NOT NULL                    -- zlib of Trajectory
) STRICT;
CREATE INDEX by_place ON trajectories(split, step, grp, idx);
CREATE INDEX by_step ON trajectories(step, number);
CREATE INDEX by_reward ON trajectories(reward, number);
CREATE INDEX by_advantage ON trajectories(advantage, number);
CREATE INDEX by_title ON trajectories(title, number);
CREATE INDEX by_turns ON trajectories(turns, number);
CREATE INDEX by_tokens ON trajectories(tokens, number);
CREATE INDEX by_duration ON trajectories(duration, number);
CREATE INDEX by_scenario ON trajectories(scenario_id, number);
CREATE INDEX by_visit ON trajectories(split, scenario_id, step, grp, reward);
CREATE INDEX unscored ON trajectories(number) WHERE reward IS NULL;
CREATE INDEX cut ON trajectories(number) WHERE truncated;
CREATE INDEX suspicious ON trajectories(number) WHERE marked;
CREATE INDEX spoken_of ON trajectories(number) WHERE labelled;

CREATE VIRTUAL TABLE transcripts USING fts5(
    prompt, answer, call, about,
    content='', contentless_delete=1, tokenize='unicode61 remove_diacritics 2'
);

CREATE TABLE groups(
    split TEXT NOT NULL,
    step INTEGER NOT NULL,
    grp INTEGER NOT NULL,
    signal INTEGER NOT NULL,
    summary TEXT NOT NULL,                -- GroupSummary
    PRIMARY KEY (split, step, grp)
) STRICT, WITHOUT ROWID;

CREATE TABLE calls(
    id TEXT PRIMARY KEY,                  -- one try; a key may have several
    key TEXT NOT NULL,
    judge TEXT NOT NULL,
    answered INTEGER NOT NULL,
    cost REAL NOT NULL,                   -- the highest it can be until it is closed
    body BLOB                             -- zlib of Call; NULL is sent and never closed
) STRICT;
CREATE INDEX by_key ON calls(key);

CREATE TABLE verdicts(
    trajectory_id TEXT NOT NULL,
    judge TEXT NOT NULL,
    rubric TEXT NOT NULL,
    at REAL NOT NULL,
    body TEXT NOT NULL,                   -- Verdict
    PRIMARY KEY (trajectory_id, judge, rubric)
) STRICT, WITHOUT ROWID;

CREATE TABLE labels(
    id TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,                 -- the event that stored it
    undone INTEGER,                       -- the event that undid it
    split TEXT NOT NULL,
    step INTEGER NOT NULL,
    grp INTEGER NOT NULL,
    body TEXT NOT NULL                    -- Label
) STRICT;
CREATE INDEX labels_by_place ON labels(split, step, grp);

CREATE TABLE checkpoints(
    step INTEGER PRIMARY KEY,
    record TEXT NOT NULL                  -- Checkpoint
) STRICT;
"""


PLAIN_INDEX = re.compile(
    r"CREATE (UNIQUE )?INDEX \w+ ON \w+\(\w+(, ?\w+)*\)( WHERE \w+( IS NULL)?)?"
)
BUSY_MS = 5000
"""Wait for a lock of another connection before giving up."""
MOST_VALUE_BYTES = 2**26
"""Longest text or blob that SQLite reads, makes or stores."""


def foreign_object(db: apsw.Connection) -> str:
    """Return the name of a schema object that Atelier does not create, or an empty string. Views,
    triggers and computed columns execute code: one that never ends would hang every reader."""
    known = _known_objects()
    for name, sql in db.execute("SELECT name, sql FROM sqlite_schema WHERE sql NOT NULL"):
        text = _normal(str(sql))
        if known.get(str(name)) != text and not PLAIN_INDEX.fullmatch(text):
            return str(name)
    return ""


@cache
def _known_objects() -> dict[str, str]:
    """Return the SQL of each table and index made by `TABLES` (with those of FTS5), by name."""
    with contextlib.closing(apsw.Connection(":memory:")) as db:
        db.execute(TABLES)
        rows = db.execute("SELECT name, sql FROM sqlite_schema WHERE sql NOT NULL")
        return {str(name): _normal(str(sql)) for name, sql in rows}


def _normal(sql: str) -> str:
    return " ".join(re.sub(r"--[^\n]*", "", sql).split())


def _check_schema(db: apsw.Connection, file: Path) -> None:
    """Raise StoreError if the schema is not that of a run."""
    db.limit(apsw.SQLITE_LIMIT_LENGTH, MOST_VALUE_BYTES)
    if name := foreign_object(db):
        db.close()
        raise damaged(file, f"{name[:60]!a} does not belong in a run's database")


def open_writer(file: Path) -> apsw.Connection:
    """Open or create a run.db for its single writer. Raises StoreError if it cannot be opened, was
    made by a newer version, or has a foreign schema."""
    try:
        db = apsw.Connection(str(file))
        db.set_busy_timeout(BUSY_MS)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute("PRAGMA journal_size_limit = 67108864")
        version = _version(db)
        if version == 0:
            with db:
                db.execute(TABLES)
                db.execute(f"PRAGMA user_version = {VERSION}")
        refuse_newer(version, file)
        _check_schema(db, file)
    except apsw.Error as error:
        raise _unreadable(file, error) from error
    return db


def open_reader(file: Path) -> apsw.Connection:
    """Open an existing run.db for reading only. Raises StoreError if it is missing, damaged, held
    by another program, was made by a newer version, or has a foreign schema."""
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise damaged(file, "it is not a regular file")
        db = _connect_to_read(file)
        version = _version(db)
    except OSError as error:
        raise damaged(file, error.strerror or str(error)) from error
    except apsw.BusyError as error:
        raise _unreadable(file, error) from error  # held by another program: not damaged
    except (apsw.Error, UnicodeDecodeError) as error:
        raise damaged(file, str(error)) from error
    refuse_newer(version, file)
    if version < VERSION:
        db.close()
        raise damaged(file, "it is empty")
    try:
        _check_schema(db, file)
    except (apsw.Error, UnicodeDecodeError) as error:
        raise damaged(file, str(error)) from error
    return db


def _connect_to_read(file: Path) -> apsw.Connection:
    """Open a database for reading. In a read-only folder SQLite cannot create the shared memory of
    WAL mode, so the file is opened as immutable. It is complete once its run has ended."""
    db = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        db.set_busy_timeout(BUSY_MS)  # another reader may be recovering or closing it right now
        _version(db)
        return db
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        db.close()
        wal = file.with_name(f"{file.name}-wal")
        if os.access(file.parent, os.W_OK) or (wal.exists() and wal.stat().st_size):
            raise
    address = f"file:{quote(str(file.absolute()))}?immutable=1"
    return apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def _version(db: apsw.Connection) -> int:
    return int(db.execute("PRAGMA user_version").get)


def refuse_newer(version: int, file: Path) -> None:
    """Raise StoreError if a file has a newer version than this engine supports."""
    if version > VERSION:
        raise StoreError.of(
            "store.newer",
            "This run was made by a newer version of Atelier.",
            "Update Atelier to open it; the run was not changed.",
            where=str(file),
        )


def _unreadable(file: Path, error: apsw.Error) -> StoreError:
    return StoreError.of(
        "store.unreadable",
        f"The run's database cannot be opened: {error}.",
        "Check the disk and the permissions of the folder.",
        where=str(file),
    )


def damaged(file: Path | None, why: str) -> StoreError:
    return StoreError.of(
        "store.damaged",
        f"The run's database is damaged: {why.rstrip('.')}.",
        "Repair the run: `atelier repair RUN` keeps everything up to the damage.",
        where=str(file or ""),
    )
