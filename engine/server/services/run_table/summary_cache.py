"""Cache of run summaries in a database of the workspace, so that thousands of runs open fast."""

import contextlib
import os
import sys
import threading
from pathlib import Path

import apsw
from pydantic import ValidationError

from engine.launcher.source_files import build
from engine.protocol.records.runs import RunSummary

FILE = "summaries.db"
TABLE = """
CREATE TABLE IF NOT EXISTS summaries(
    folder BLOB PRIMARY KEY, stamp TEXT NOT NULL, build TEXT NOT NULL, body TEXT NOT NULL
) STRICT, WITHOUT ROWID
"""
Stamp = tuple[float, ...]


class SummaryCache:
    """Summaries by run folder and stamp, the modification times of the run's files. Losing the
    database loses nothing: what is missing is read from the run folder again. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        """Open or create the database in `folder`; one that is damaged is made anew. Raises OSError
        or apsw.Error where nothing can be written."""
        self._one_at_a_time = threading.Lock()
        self._build = build()
        file = folder / FILE
        try:
            self._db = _opened(file)
        except (apsw.CorruptError, apsw.NotADBError):
            for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
                (folder / name).unlink(missing_ok=True)
            self._db = _opened(file)

    def close(self) -> None:
        with self._one_at_a_time:
            self._db.close()

    def get(self, folder: Path, stamp: Stamp) -> RunSummary | None:
        """Return the stored summary of a run folder; None if there is none, if it was stored for
        another `stamp` (times of changes of the folder's files), or by another build of the
        engine."""
        sql = "SELECT body FROM summaries WHERE folder = ? AND stamp = ? AND build = ?"
        with self._one_at_a_time:
            row = self._db.execute(sql, (os.fsencode(folder), repr(stamp), self._build)).fetchone()
        if row is None:
            return None
        with contextlib.suppress(ValidationError):  # then it is read from the folder
            return RunSummary.model_validate_json(str(row[0]))
        return None

    def put(self, folder: Path, stamp: Stamp, summary: RunSummary) -> None:
        """Store the summary of a run folder whose files have the times of change `stamp`, replacing
        an earlier one. Disk errors are ignored."""
        values = (os.fsencode(folder), repr(stamp), self._build, summary.model_dump_json())
        with self._one_at_a_time, contextlib.suppress(apsw.FullError, apsw.IOError, apsw.BusyError):
            self._db.execute("REPLACE INTO summaries VALUES(?, ?, ?, ?)", values)


def open_cache(folder: Path) -> SummaryCache | None:
    """Open or create the cache of run summaries in `folder`; None if nothing can be written there,
    with the reason printed on stderr."""
    try:
        return SummaryCache(folder)
    except (OSError, apsw.Error) as error:
        sys.stderr.write(f"Summaries of runs are not cached: {error}\n")
        return None


def _opened(file: Path) -> apsw.Connection:
    db = apsw.Connection(str(file))
    try:
        db.set_busy_timeout(2000)
        db.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; " + TABLE).fetchall()
    except BaseException:
        db.close()
        raise
    return db
