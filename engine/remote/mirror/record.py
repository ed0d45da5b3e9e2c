"""Record of a mirrored run: its server and id, in a small file of the run folder."""

from pathlib import Path

from engine.protocol.base import Value
from engine.runtime.files import replace_file
from engine.trust.files import read_regular

FILE = "replica.json"
MOST_BYTES = 2**16


class Replicated(Value):
    """A run that lives on a server; its folder here is filled from there."""

    host: str
    """The server by the name it has here."""
    folder: str
    """The project's name in the workspace there."""


def read_record(run: Path) -> Replicated | None:
    """None for a run that lives here."""
    try:
        return Replicated.model_validate_json(read_regular(run / FILE, MOST_BYTES))
    except (OSError, ValueError):
        return None


def forget_record(run: Path) -> None:
    """Delete the record: the run belongs to this machine from now on."""
    (run / FILE).unlink(missing_ok=True)


def write_record(run: Path, record: Replicated) -> None:
    replace_file(run / FILE, record.model_dump_json(indent=1) + "\n")
