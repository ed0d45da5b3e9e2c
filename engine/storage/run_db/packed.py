"""Parsing of records from the columns of a run.db, plain or compressed."""

import zlib
from typing import TypeVar

from engine.protocol.base import Value
from engine.protocol.problems import in_one_line
from engine.storage.run_db.schema import damaged

MOST_UNPACKED = 2**26
"""Maximum size of a decompressed record in bytes."""

R = TypeVar("R", bound=Value)


def parse_record(kind: type[R], body: object) -> R:
    """Parse a record of type `kind` from `body`, the JSON text of a column. Raises StoreError if it
    is invalid."""
    try:
        return kind.model_validate_json(str(body))
    except ValueError as error:
        raise damaged(
            None, f"a row is not a valid {kind.__name__}: {in_one_line(error)}"
        ) from error


def unpack_record(kind: type[R], body: object) -> R:
    """Parse a record of type `kind` from `body`, the zlib-compressed JSON of a column. Raises
    StoreError if it is invalid, damaged or too large."""
    return parse_record(kind, unpacked_text(kind, body))


def unpacked_text(kind: type[Value], body: object) -> str:
    """Decompress `body`, the zlib-compressed JSON of a column, to text without parsing it; `kind`
    is only named in errors. Raises StoreError if it is damaged or too large."""
    try:
        assert isinstance(body, bytes)
        packed = zlib.decompressobj()
        text = packed.decompress(body, MOST_UNPACKED)
        if not packed.eof:
            raise ValueError("it is cut off or too large")
    except (AssertionError, ValueError, zlib.error) as error:
        raise damaged(
            None, f"a compressed row is not a valid {kind.__name__}: {in_one_line(error)}"
        ) from error
    return text.decode("utf-8", "replace")
