"""Page of changes: the next events of a run.db and the rows that they refer to, as a small
database.

Pages are made by the engine that executes the run, in one SQL read transaction. Rows are current,
so they may be newer than the last event of the page; a later event refers to the newer change, and
its page sends the row again. The wire format is an SQLite file in zlib, whose checksum detects
damage.
"""

import contextlib
import zlib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import apsw

from engine.storage.run_db.schema import VERSION, open_reader

MOST_EVENTS = 20_000
MOST_BYTES = 16 * 2**20
"""Largest size of the events and bodies in one page; a single event with its rows may be larger."""
MOST_UNPACKED = 2**28
"""Largest size of an unpacked page that is accepted."""
AT_ONCE = 1000
"""Events that are fetched and measured in one query."""
LEVEL = 1
PIECE, SAMPLE, WORTH = 2**17, 2**12, 0.8
"""Block and sample in bytes; a block is compressed if its sample shrinks below this ratio."""

SPEAKS: dict[str, tuple[str, ...]] = {
    "trajectory.recorded": ("trajectories",),
    "group.judged": ("trajectories", "verdicts"),
    "group.scored": ("trajectories", "groups"),
    "group.labelled": ("trajectories", "groups", "labels"),
    "call.opened": ("calls",),
    "call.closed": ("calls",),
    "checkpoint.saved": ("checkpoints",),
    "checkpoint.dropped": ("checkpoints",),
}
"""Kinds of events that are stored together with database rows, and the tables of these rows.
`transcripts` is not sent, because it is derived from the bodies."""

ROWS = ("trajectories", "groups", "calls", "verdicts", "labels", "checkpoints")

# What the events of the page speak of, with the first `seq` that does.
MENTIONED = """
CREATE TEMP TABLE whole(id TEXT PRIMARY KEY, seq INTEGER) WITHOUT ROWID;
CREATE TEMP TABLE places(kind TEXT, split TEXT, step INTEGER, grp INTEGER, seq INTEGER);
CREATE TEMP TABLE questions(key TEXT PRIMARY KEY, seq INTEGER) WITHOUT ROWID;
"""
MENTION = """
INSERT INTO whole SELECT body ->> '$.trajectory.id', seq FROM events
    WHERE seq > :last AND kind = 'trajectory.recorded'
    UNION ALL SELECT one.value ->> '$.id', seq
    FROM events, json_each(events.body, '$.trajectories') one
    WHERE seq > :last AND kind IN ('group.judged', 'group.labelled') {first};
INSERT INTO places SELECT kind, body ->> '$.split', body ->> '$.step', body ->> '$.group', seq
    FROM events WHERE seq > :last AND kind = 'group.judged';
INSERT INTO places SELECT kind, body ->> '$.group.split', body ->> '$.group.step',
    body ->> '$.group.group', seq FROM events
    WHERE seq > :last AND kind IN ('group.scored', 'group.labelled');
INSERT INTO questions SELECT body ->> '$.key', seq FROM events
    WHERE seq > :last AND kind IN ('call.opened', 'call.closed') {first};
""".format(first="ON CONFLICT DO UPDATE SET seq = min(seq, excluded.seq)")

# By event behind `last`: the bytes of all up to it, with the rows that it is the first to speak of.
WEIGH = """
WITH parts(seq, bytes) AS (
    SELECT seq, octet_length(body) FROM events WHERE seq > :last
    UNION ALL
    SELECT m.seq, octet_length(t.body) FROM whole m CROSS JOIN run.trajectories t USING (id)
        WHERE m.seq > :last
    UNION ALL
    SELECT m.seq, octet_length(c.body) FROM questions m CROSS JOIN run.calls c USING (key)
        WHERE m.seq > :last
), sums AS (SELECT seq, sum(sum(bytes)) OVER (ORDER BY seq) AS total FROM parts GROUP BY seq)
SELECT max(total), min(seq) FILTER (WHERE total >= :left) FROM sums
"""

# A scored group changes what stands beside the bodies of its attempts, which are at home already:
# those travel without (a body is NULL).
# CROSS JOIN keeps what the page speaks of in the outer loop: a table of the run is never walked.
COPY = """
INSERT INTO trajectories SELECT t.* FROM whole CROSS JOIN run.trajectories t USING (id);
INSERT INTO trajectories SELECT {light} FROM (
        SELECT DISTINCT split, step, grp FROM places WHERE kind != 'group.judged')
    CROSS JOIN run.trajectories USING (split, step, grp) WHERE id NOT IN (SELECT id FROM whole);
INSERT INTO groups SELECT g.* FROM (
        SELECT DISTINCT split, step, grp FROM places WHERE kind != 'group.judged')
    CROSS JOIN run.groups g USING (split, step, grp);
INSERT INTO verdicts SELECT v.* FROM (
        SELECT DISTINCT split, step, grp FROM places WHERE kind = 'group.judged')
    CROSS JOIN run.trajectories t USING (split, step, grp)
    CROSS JOIN run.verdicts v ON v.trajectory_id = t.id;
INSERT INTO calls(rowid, {calls}) SELECT c.rowid, {calls}
    FROM questions CROSS JOIN run.calls c USING (key);
INSERT INTO labels(rowid, {labels}) SELECT l.rowid, {labels} FROM (
        SELECT DISTINCT body ->> '$.label.id' AS id FROM events WHERE kind = 'group.labelled')
    CROSS JOIN run.labels l USING (id);
INSERT INTO checkpoints SELECT c.* FROM (
        SELECT DISTINCT coalesce(body ->> '$.checkpoint.step', body ->> '$.step') AS step
        FROM events WHERE kind IN ('checkpoint.saved', 'checkpoint.dropped'))
    CROSS JOIN run.checkpoints c USING (step);
"""


@dataclass(frozen=True)
class Page:
    """Compressed changes of a run."""

    content: bytes
    last: int
    """`seq` of the last event in the page."""
    known: int
    """`seq` of the run's last event when the page was made."""


def columns(db: apsw.Connection, table: str, schema: str = "main") -> list[tuple[str, str]]:
    """(name, type) of a table's columns, in order. `schema`: name of the attached database."""
    return [
        (str(row[1]), str(row[2])) for row in db.execute(f"PRAGMA {schema}.table_info({table})")
    ]


def page_schema(db: apsw.Connection, schema: str = "main") -> dict[str, str]:
    """Return table name → SQL that creates the table in a page of changes, derived from an open
    run.db, which is called `schema` within the connection."""
    made = {"about": "CREATE TABLE about(run_id TEXT, version INTEGER) STRICT"}
    for table in ("events", *ROWS):
        definitions = ", ".join(f"{name} {kind}" for name, kind in columns(db, table, schema))
        made[table] = f"CREATE TABLE {table}({definitions}) STRICT"
    return made


def last_seq(file: Path) -> int:
    """`seq` of the last event of a run. Raises StoreError if the file cannot be read."""
    with contextlib.closing(open_reader(file)) as db:
        return int(db.execute("SELECT coalesce(max(seq), 0) FROM events").get)


def read_page(
    file: Path,
    run_id: str,
    after: int,
    most_events: int = MOST_EVENTS,
    most_bytes: int = MOST_BYTES,
) -> Page | None:
    """Return a page of a run.db: events with `seq` above `after`, up to the limits, and the rows
    that they refer to; None if there are no such events. Raises StoreError if the file cannot be
    read."""
    if last_seq(file) <= after:
        return None
    with contextlib.closing(_beside(file)) as db:
        with db:  # one transaction: everything is seen as it was at one moment
            known = int(db.execute("SELECT max(seq) FROM run.events").get)
            last = _fill(db, run_id, after, most_events, most_bytes)
        return Page(pack(db.serialize("main")), last, known)


def _beside(file: Path) -> apsw.Connection:
    """Connection to an empty in-memory database with the run attached read-only as `run`."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    db = apsw.Connection(":memory:", flags=flags)
    db.set_busy_timeout(5000)
    db.execute("PRAGMA temp_store = MEMORY")
    db.execute("ATTACH ? AS run", (f"file:{quote(str(file.absolute()))}?mode=ro",))
    return db


def _fill(db: apsw.Connection, run_id: str, after: int, most_events: int, most_bytes: int) -> int:
    for sql in page_schema(db, "run").values():
        db.execute(sql)
    db.execute("INSERT INTO about VALUES (?, ?)", (run_id, VERSION))
    last = _take_events(db, after, most_events, most_bytes)
    names = {table: [name for name, _ in columns(db, table)] for table in ROWS}
    light = ["NULL" if name == "body" else name for name in names["trajectories"]]
    db.execute(
        COPY.format(
            light=", ".join(light),
            calls=", ".join(names["calls"]),
            labels=", ".join(names["labels"]),
        )
    )
    return last


def _take_events(db: apsw.Connection, after: int, most_events: int, most_bytes: int) -> int:
    """Copy events up to the one that fills the page, inclusive. Returns the last `seq`."""
    db.execute(MENTIONED)
    last, taken, left = after, 0, most_bytes
    while taken < most_events:
        count = min(AT_ONCE, most_events - taken)
        db.execute(
            "INSERT INTO events SELECT * FROM run.events WHERE seq > ? ORDER BY seq LIMIT ?",
            (last, count),
        )
        taken += db.changes()
        db.execute(MENTION, {"last": last})
        weight, full = db.execute(WEIGH, {"last": last, "left": left}).get
        if full is not None:
            for table in ("events", "whole", "places", "questions"):
                db.execute(f"DELETE FROM {table} WHERE seq > ?", (full,))
            return int(full)
        last = int(db.execute("SELECT max(seq) FROM events").get)
        if weight is None or taken % AT_ONCE:
            break
        left -= int(weight)
    return last


def pack(content: bytes) -> bytes:
    """Compress bytes to a zlib stream. Blocks that would not shrink, such as trajectory records,
    which are compressed already, are stored as they are."""
    parts = [b"\x78\x01"]  # the header that zlib writes at this level (RFC 1950)
    for start in range(0, len(content), PIECE):
        piece = content[start : start + PIECE]
        middle = piece[len(piece) // 2 :][:SAMPLE]
        pays = len(zlib.compress(middle, LEVEL)) < WORTH * len(middle)
        packer = zlib.compressobj(LEVEL if pays else 0, wbits=-zlib.MAX_WBITS)
        ended = zlib.Z_FINISH if start + PIECE >= len(content) else zlib.Z_FULL_FLUSH
        parts += [packer.compress(piece), packer.flush(ended)]
    parts.append(zlib.adler32(content).to_bytes(4, "big"))
    return b"".join(parts)
