"""Checks of the rows of a page before any of them is stored: a page comes from another machine.

What the home machine reads later by SQL or pydantic must read: events and records are of their
forms, JSON is JSON for SQLite as well, numbers are finite, and compressed bodies unpack to a
bounded size.
"""

import zlib
from collections.abc import Iterator
from typing import Any

import apsw
from pydantic import BaseModel

from engine.protocol.events.run import decode
from engine.protocol.records.judging import Verdict
from engine.protocol.records.labels import Label
from engine.protocol.records.runs import Checkpoint, GroupSummary, TrajectorySummary

MOST_BODY_BYTES = 2**27
"""Size limit of one trajectory or one call, unpacked."""
MOST_BODIES_BYTES = 2**30
"""Size limit of all bodies in one page, unpacked one after the other."""
BLOCK = 2**18
LARGEST = 1e150
"""Largest figure accepted: a larger one was not measured, and sums of such would be infinite."""
FORMS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("SELECT summary FROM trajectories", TrajectorySummary),
    ("SELECT summary FROM groups", GroupSummary),
    ("SELECT body FROM verdicts", Verdict),
    ("SELECT body FROM labels", Label),
    ("SELECT record FROM checkpoints", Checkpoint),
)
BODIES = ("SELECT body FROM trajectories", "SELECT body FROM calls")


def check_rows(page: apsw.Connection) -> None:
    """Check all rows of a page. Raises ValueError for the first one that this machine would not
    have stored."""
    for seq, kind, body in page.execute("SELECT seq, kind, body FROM events"):
        event = decode(_text(body))
        if (event.seq, event.kind) != (seq, kind):  # type: ignore[union-attr]
            raise ValueError(f"event {seq} says that it is another")
    for sql, form in FORMS:
        for (text,) in page.execute(sql):
            form.model_validate_json(_text(text))
    for sql in _not_json():
        if page.execute(f"{sql} LIMIT 1").get is not None:
            raise ValueError("a row is no JSON")
    for table, column in (
        ("trajectories", "reward"),
        ("trajectories", "advantage"),
        ("trajectories", "duration"),
        ("calls", "cost"),
        ("verdicts", "at"),
    ):
        sql = f"SELECT 1 FROM {table} WHERE abs({column}) > ? LIMIT 1"
        if page.execute(sql, (LARGEST,)).get is not None:
            raise ValueError(f"{table} hold a {column} beyond all measure")
    left = MOST_BODIES_BYTES
    for sql in BODIES:
        for (packed,) in page.execute(f"{sql} WHERE body NOT NULL"):
            left -= unpacked_size(packed)
            if left < 0:
                raise ValueError("bodies unpack to more than there can be")


def _not_json() -> Iterator[str]:
    yield "SELECT 1 FROM events WHERE NOT json_valid(body)"
    for sql, _ in FORMS:
        column = sql.split()[1]
        yield f"{sql.replace(column, '1', 1)} WHERE NOT json_valid({column})"


def unpacked_size(packed: Any) -> int:
    """Unpacked size of a body in bytes, read in small blocks. Raises ValueError where the body is
    cut off, damaged or too large."""
    if not isinstance(packed, bytes):
        raise ValueError("a body is no blob")
    unpacker, size, rest = zlib.decompressobj(), 0, packed
    try:
        while not unpacker.eof:
            block = unpacker.decompress(rest, BLOCK)
            size += len(block)
            rest = unpacker.unconsumed_tail
            if size > MOST_BODY_BYTES:
                raise ValueError(f"a body unpacks to more than {MOST_BODY_BYTES >> 20} MiB")
            if not block and not rest and not unpacker.eof:
                raise ValueError("a body is cut off")
    except zlib.error as error:
        raise ValueError(f"a body does not unpack: {error}") from error
    return size


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a row holds no text")
    return value
