"""Records out of the columns of a run.db, plain or packed."""

import zlib
from typing import TypeVar

from engine.protocol.base import Value
from engine.protocol.problems import in_one_line
from engine.storage.run_db.schema import damaged

MOST_UNPACKED = 2**26
"""Bytes of one record."""

R = TypeVar("R", bound=Value)


def parse_record(kind: type[R], body: object) -> R:
    """A record out of its column. Raises StoreError where it is none."""
    try:
        return kind.model_validate_json(str(body))
    except ValueError as error:
        raise damaged(None, f"a row is no {kind.__name__}: {in_one_line(error)}") from error


def unpack_record(kind: type[R], body: object) -> R:
    """The same out of a packed column."""
    return parse_record(kind, unpacked_text(kind, body))


def unpacked_text(kind: type[Value], body: object) -> str:
    """Text of a packed column. Raises StoreError where it is none."""
    try:
        assert isinstance(body, bytes)
        packed = zlib.decompressobj()
        text = packed.decompress(body, MOST_UNPACKED)
        if not packed.eof:
            raise ValueError("it is cut, or larger than any record")
    except (AssertionError, ValueError, zlib.error) as error:
        raise damaged(None, f"a packed row is no {kind.__name__}: {in_one_line(error)}") from error
    return text.decode("utf-8", "replace")
