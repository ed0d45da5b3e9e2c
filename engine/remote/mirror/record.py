"""Record of a mirrored run: its server and the project's folder there, in a small file of the run
folder."""

from pathlib import Path

from engine.protocol.base import Value
from engine.runtime.files import replace_file
from engine.trust.files import read_regular

FILE = "replica.json"
MOST_BYTES = 2**16


class Replicated(Value):
    """Server and folder of a run that is executed on a server; its local folder is a replica."""

    host: str
    """Name of the server on this machine."""
    folder: str
    """Name of the project's folder in the server's workspace."""


def read_record(run: Path) -> Replicated | None:
    """Read the server, and the project's folder there, of the run mirrored in folder `run`; None
    for a run of this machine."""
    try:
        return Replicated.model_validate_json(read_regular(run / FILE, MOST_BYTES))
    except (OSError, ValueError):
        return None


def forget_record(run: Path) -> None:
    """Delete the file that marks a run as mirrored, which makes it a run of this machine."""
    (run / FILE).unlink(missing_ok=True)


def write_record(run: Path, record: Replicated) -> None:
    replace_file(run / FILE, record.model_dump_json(indent=1) + "\n")
