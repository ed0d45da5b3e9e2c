"""Replica: the local run.db of a remote run, filled from pages of changes.

A page is stored completely or not at all, in one transaction with synchronous=FULL: its events, its
rows, and the search entries of its trajectories. The last stored event is therefore the position
from which an interrupted transfer resumes. Pages come from another machine: only known tables and
columns are read, and a damaged page or one of another schema is refused.
"""

import contextlib
import json
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
from pydantic import BaseModel, TypeAdapter

from engine.protocol.events.run import decode
from engine.protocol.problems import StoreError
from engine.protocol.records.judging import Verdict
from engine.protocol.records.labels import Label
from engine.protocol.records.runs import Checkpoint, GroupSummary, TrajectorySummary
from engine.protocol.requests.runs import TrajectoryFacts
from engine.remote.mirror.pages import MOST_UNPACKED, columns, page_schema
from engine.storage.run_db.facts import SearchedRecord, search_text
from engine.storage.run_db.schema import VERSION, open_writer
from engine.storage.run_folder.run import DATABASE

CACHE_KB = 65_536
CHECKPOINT_PAGES = 16_384
"""WAL pages (64 MB) between checkpoints, so that changes of several pages in one place merge."""
HEAD_BYTES = 2**13
MESSAGES_END = b'],"branches":['
UNREADABLE = (zlib.error, ValueError, LookupError, TypeError)
"""Exceptions raised by reading an invalid body."""

# What may be replaced is found by its id: a row that was stored again has another number.
STORE = """
INSERT INTO events SELECT * FROM page.events WHERE seq > :seq ORDER BY seq;

CREATE TEMP TABLE again AS SELECT t.number FROM page.trajectories p
    JOIN main.trajectories t USING (id) WHERE p.body NOT NULL;
DELETE FROM transcripts WHERE rowid IN (SELECT number FROM again);
DELETE FROM trajectories WHERE number IN (SELECT number FROM again);
DROP TABLE again;
INSERT INTO trajectories SELECT * FROM page.trajectories WHERE body NOT NULL ORDER BY number;
INSERT INTO transcripts(rowid, prompt, answer, call, about)
    WITH texts AS MATERIALIZED (
        SELECT number, words_of(body) AS words FROM page.trajectories WHERE body NOT NULL)
    SELECT number, words ->> 0, words ->> 1, words ->> 2, words ->> 3 FROM texts ORDER BY number;
UPDATE trajectories SET ({light}) = ({of_page}) FROM page.trajectories p
    WHERE p.body IS NULL AND p.id = trajectories.id AND p.number = trajectories.number;

INSERT OR REPLACE INTO groups SELECT * FROM page.groups;
INSERT OR REPLACE INTO verdicts SELECT * FROM page.verdicts;
INSERT OR REPLACE INTO calls(rowid, {calls}) SELECT rowid, {calls} FROM page.calls ORDER BY rowid;
INSERT OR REPLACE INTO labels(rowid, {labels}) SELECT rowid, {labels} FROM page.labels;
DELETE FROM checkpoints WHERE step IN (
    SELECT coalesce(body ->> '$.checkpoint.step', body ->> '$.step') FROM page.events
    WHERE kind IN ('checkpoint.saved', 'checkpoint.dropped'));
INSERT INTO checkpoints SELECT * FROM page.checkpoints;
"""


_SEARCHED = TypeAdapter(SearchedRecord)


class Replica:
    """Replica database of one run. Methods may be called from any thread, one at a time."""

    def __init__(self, folder: Path, run_id: str) -> None:
        """Open or create the database of a run folder. Raises StoreError."""
        self._run_id = run_id
        self._where = str(folder)
        self._one_at_a_time = threading.Lock()
        self._db = open_writer(folder / DATABASE)
        self._db.execute(f"PRAGMA cache_size = -{CACHE_KB}")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        self._db.execute("PRAGMA trusted_schema = OFF")
        self._db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        self._db.create_scalar_function("words_of", searched_columns, 1)  # type: ignore[arg-type]
        self._form = {("table", name, sql) for name, sql in page_schema(self._db).items()}
        self._store = _store_sql(self._db)
        self._seq = self._stored()

    @property
    def seq(self) -> int:
        """`seq` of the last stored event."""
        return self._seq

    def apply(self, page: bytes) -> int:
        """Store the events and rows of a page that are new; returns the `seq` of the last event
        stored. Raises StoreError for a page that is damaged, of another run or version, or that
        does not follow the last stored event, and if the disk is full; the database is then
        unchanged."""
        unpacked = self._unpack(page)
        with self._one_at_a_time:
            try:
                self._check(unpacked)
                self._seq = self._store_beside(unpacked)
            except (apsw.Error, *UNREADABLE) as error:
                raise self._not_stored(error) from error
        return self._seq

    def close(self) -> None:
        """Close the database after the current page is stored."""
        with self._one_at_a_time:
            self._db.close()

    def _unpack(self, page: bytes) -> bytes:
        try:
            packed = zlib.decompressobj()
            unpacked = packed.decompress(page, MOST_UNPACKED)
        except zlib.error as error:
            raise self._damaged(str(error)) from error
        if not packed.eof or packed.unused_data or not unpacked:
            raise self._damaged("wrong length")
        return unpacked

    def _check(self, unpacked: bytes) -> None:
        """Check an unpacked page: valid tables of the expected schema only, of this run. It is
        opened in a separate database, so that its schema never meets the replica's."""
        with contextlib.closing(apsw.Connection(":memory:")) as db:
            db.execute("PRAGMA trusted_schema = OFF")
            db.deserialize("main", unpacked)
            found = db.execute("SELECT type, name, sql FROM sqlite_schema").fetchall()
            if set(found) != self._form:
                raise self._damaged("unexpected tables")
            if (verdict := db.execute("PRAGMA quick_check(1)").get) != "ok":
                raise self._damaged(str(verdict))
            if db.execute("SELECT run_id, version FROM about").get != (self._run_id, VERSION):
                raise self._damaged("they belong to another run or version of Atelier")
            check_rows(db)

    def _store_beside(self, unpacked: bytes) -> int:
        self._db.execute("ATTACH ':memory:' AS page")
        try:
            self._db.deserialize("page", unpacked)
            return self._store_page()
        finally:
            self._db.execute("DETACH page")

    def _store_page(self) -> int:
        with self._db:
            seq = self._stored()
            count, first, last = self._db.execute(
                "SELECT count(*), coalesce(min(seq), 0), coalesce(max(seq), 0) FROM page.events"
            ).get
            if last <= seq:
                return seq  # its rows are older than ours
            if first > seq + 1 or last - first + 1 != count:
                raise StoreError.of(
                    "replica.gap",
                    f"The server sent changes {first} to {last}, but the last stored change is "
                    f"{seq}.",
                    f"All changes from {seq + 1} are requested again.",
                    where=self._where,
                )
            self._db.execute(self._store, {"seq": seq})
        return int(last)

    def _stored(self) -> int:
        return int(self._db.execute("SELECT coalesce(max(seq), 0) FROM main.events").get)

    def _damaged(self, why: str) -> StoreError:
        return StoreError.of(
            "replica.damaged",
            f"Data received for this run is damaged: {why}.",
            "Nothing was stored; the changes are requested again. If this repeats, update "
            "Atelier on both machines to the same version.",
            where=self._where,
        )

    def _not_stored(self, error: Exception) -> StoreError:
        if isinstance(error, apsw.FullError | apsw.IOError):
            return StoreError.of(
                "store.disk_full",
                "Changes of the run could not be stored: the disk is full or does not respond.",
                "Free some space; the mirror then continues.",
                where=self._where,
                detail=str(error),
            )
        return self._damaged(str(error))


def _store_sql(db: apsw.Connection) -> str:
    names = {t: [name for name, _ in columns(db, t)] for t in ("trajectories", "calls", "labels")}
    light = [name for name in names["trajectories"] if name not in ("number", "id", "body")]
    return STORE.format(
        light=", ".join(light),
        of_page=", ".join(f"p.{name}" for name in light),
        calls=", ".join(names["calls"]),
        labels=", ".join(names["labels"]),
    )


def searched_columns(body: bytes) -> str:
    """Searchable text of a trajectory from its stored body: a JSON list of the columns. Only the
    messages at the beginning of the body are unpacked, not the larger branches. If the end of the
    messages is not found, or the text before it is not valid JSON because a message contains that
    same text, all is read."""
    packed = zlib.decompressobj()
    head, searched, rest = bytearray(), 0, body
    while not packed.eof:
        block = packed.decompress(rest, HEAD_BYTES)
        rest = packed.unconsumed_tail
        if not block and not rest:
            break
        head += block
        end = head.find(MESSAGES_END, searched)
        if end >= 0:
            with contextlib.suppress(ValueError):
                return _columns(bytes(head[:end]) + b"]}")
            break
        if len(head) > MOST_BODY_BYTES:
            raise ValueError("a trajectory is too large")
        searched = max(0, len(head) - len(MESSAGES_END))
    unpacked_size(body)
    return _columns(zlib.decompress(body))


def _columns(record: bytes) -> str:
    return json.dumps(search_text(_SEARCHED.validate_json(record)), ensure_ascii=False)


MOST_BODY_BYTES = 2**27
"""Size limit of one trajectory or one call, unpacked."""
MOST_BODIES_BYTES = 2**30
"""Size limit of all bodies in one page, unpacked one after the other."""
BLOCK = 2**18
LARGEST = 1e150
"""Largest absolute value accepted for a number: sums of larger ones could overflow."""
FORMS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("SELECT summary FROM trajectories", TrajectorySummary),
    ("SELECT facts FROM trajectories", TrajectoryFacts),
    ("SELECT summary FROM groups", GroupSummary),
    ("SELECT body FROM verdicts", Verdict),
    ("SELECT body FROM labels", Label),
    ("SELECT record FROM checkpoints", Checkpoint),
)
BODIES = ("SELECT body FROM trajectories", "SELECT body FROM calls")


def check_rows(page: apsw.Connection) -> None:
    """Check all rows of a page of changes. Raises ValueError for the first row with an invalid
    record, a number out of range, or a record that is too large."""
    for seq, kind, body in page.execute("SELECT seq, kind, body FROM events"):
        event = decode(_text(body))
        if (event.seq, event.kind) != (seq, kind):  # type: ignore[union-attr]
            raise ValueError(f"the number or kind of event {seq} differs from its content")
    for sql, form in FORMS:
        for (text,) in page.execute(sql):
            form.model_validate_json(_text(text))
    for sql in _not_json():
        if page.execute(f"{sql} LIMIT 1").get is not None:
            raise ValueError("a row is not JSON")
    for table, column in (
        ("trajectories", "reward"),
        ("trajectories", "advantage"),
        ("trajectories", "duration"),
        ("calls", "cost"),
        ("verdicts", "at"),
    ):
        sql = f"SELECT 1 FROM {table} WHERE abs({column}) > ? LIMIT 1"
        if page.execute(sql, (LARGEST,)).get is not None:
            raise ValueError(f"a {column} in {table} is out of range")
    left = MOST_BODIES_BYTES
    for sql in BODIES:
        for (packed,) in page.execute(f"{sql} WHERE body NOT NULL"):
            left -= unpacked_size(packed)
            if left < 0:
                raise ValueError("the trajectories and judge calls are too large")


def _not_json() -> Iterator[str]:
    yield "SELECT 1 FROM events WHERE NOT json_valid(body)"
    for sql, _ in FORMS:
        column = sql.split()[1]
        yield f"{sql.replace(column, '1', 1)} WHERE NOT json_valid({column})"


def unpacked_size(packed: Any) -> int:
    """Unpacked size of a body in bytes, read in small blocks. Raises ValueError where the body is
    cut off, damaged or too large."""
    if not isinstance(packed, bytes):
        raise ValueError("a trajectory or judge call is not binary data")
    unpacker, size, rest = zlib.decompressobj(), 0, packed
    try:
        while not unpacker.eof:
            block = unpacker.decompress(rest, BLOCK)
            size += len(block)
            rest = unpacker.unconsumed_tail
            if size > MOST_BODY_BYTES:
                raise ValueError(
                    f"a trajectory or judge call is larger than {MOST_BODY_BYTES >> 20} MiB"
                )
            if not block and not rest and not unpacker.eof:
                raise ValueError("a trajectory or judge call is incomplete")
    except zlib.error as error:
        raise ValueError(f"a trajectory or judge call cannot be unpacked: {error}") from error
    return size


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a row is not text")
    return value
