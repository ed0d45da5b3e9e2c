"""notes.json of a run folder: what a person noted about the run."""

import os
import stat
from pathlib import Path

from pydantic import ValidationError

from engine.protocol.records.run_notes import RunNotes
from engine.runtime.files import replace_file

FILE = "notes.json"
MOST_BYTES = 100_000


def read_notes(folder: Path) -> RunNotes:
    """Return the notes of a run; empty ones without a file. If the file cannot be read, the
    returned note says so, so that the run is still listed."""
    file = folder / FILE
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return RunNotes()
    except OSError as error:
        return _unreadable(error)
    with os.fdopen(descriptor, "rb") as source:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return _unreadable("it is not a regular file")
        content = source.read(MOST_BYTES + 1)
    try:
        return RunNotes.model_validate_json(content)
    except ValidationError as error:
        return _unreadable(error.errors()[0]["msg"])


def write_notes(folder: Path, notes: RunNotes) -> None:
    """Replace the notes of a run durably. Raises OSError."""
    replace_file(folder / FILE, notes.model_dump_json(indent=1))


def _unreadable(why: object) -> RunNotes:
    return RunNotes(note=f"{FILE} cannot be read: {str(why)[:300]}")
