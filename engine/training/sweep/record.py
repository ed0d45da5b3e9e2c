"""Record of a sweep on disk: `sweeps/<ulid>/sweep.json` in the project, replaced atomically.

Nothing else is stored: the search and successive halving are computed from this record, so a sweep
can resume after a crash at any moment.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from engine.protocol.identifiers import RUN_ID
from engine.protocol.json_text import parse_json
from engine.protocol.problems import Problem, Refused, StoreError, in_one_line
from engine.protocol.records.sweeps import SweepRecord
from engine.runtime import locks
from engine.runtime.files import replace_file
from engine.trust.files import read_regular

FOLDER = "sweeps"
RECORD = "sweep.json"
LOCK = "lock"
MOST_BYTES = 2**27
ACTIVE = ("waiting", "running")
"""States of a sweep in which an engine works on it, or will."""
INTERRUPTED = Problem(
    code="sweep.interrupted",
    message="The engine ended while this sweep was active.",
    hint="Resume the sweep to continue; all stored data is kept.",
)


def sweep_folders(project: Path) -> list[Path]:
    """Folders of the sweeps of a project, newest first."""
    found = project.glob(f"{FOLDER}/*/{RECORD}")
    return sorted((file.parent for file in found if is_sweep_id(file.parent.name)), reverse=True)


def is_sweep_id(text: str) -> bool:
    """Whether a text has the form of a sweep's id (a ULID)."""
    return re.fullmatch(RUN_ID[1:-1], text) is not None


def write_record(folder: Path, record: SweepRecord) -> None:
    """Store a record; it is on the disk when this returns. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / RECORD, record.model_dump_json(indent=1))


def read_record(folder: Path) -> SweepRecord:
    """The stored record of a sweep. Raises StoreError if it is missing, damaged or too new."""
    try:
        data = parse_json(read_regular(folder / RECORD, MOST_BYTES))
        version = data.get("schema_version", 1) if isinstance(data, dict) else 1
        if isinstance(version, int) and version > 1:
            raise StoreError.of(
                "store.newer",
                "This sweep was made by a newer version of Atelier.",
                "Update Atelier to open the sweep; it was not changed.",
                where=str(folder),
            )
        record = SweepRecord.model_validate(data)
        if record.id != folder.name:
            raise ValueError("it is the record of another sweep")
        return record
    except (OSError, ValueError) as error:
        raise StoreError.of(
            "sweep.damaged",
            f"The sweep's {RECORD} cannot be read: {in_one_line(error)}.",
            "The runs of the sweep are not affected. Start a new sweep.",
            where=str(folder),
        ) from error


def current_record(folder: Path) -> SweepRecord:
    """The record as it is to be shown: paused if it is active on disk but no engine works on it.
    Raises StoreError."""
    record = read_record(folder)
    if record.state in ACTIVE and not locks.is_locked(folder / LOCK):
        return record.model_copy(update={"state": "paused", "problem": INTERRUPTED})
    return record


@contextlib.contextmanager
def locked_sweep(folder: Path) -> Iterator[None]:
    """Hold the lock of a sweep for the block. Raises Refused if another engine works on it."""
    try:
        descriptor = locks.take_lock(folder / LOCK, 0.2)
    except locks.Busy:
        raise Refused.of(
            "sweep.locked",
            "Another engine is running this sweep.",
            "Open the sweep in the studio or terminal that started it.",
            where=str(folder),
        ) from None
    with locks.released(descriptor):
        yield
