"""Store of the person's confirmations: a file in their configuration folder, readable only by them.

No project can write it, so a downloaded folder cannot confirm itself. Changes are serialised
between processes by a lock file and become visible by rename.
"""

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.protocol.problems import Refused
from engine.protocol.requests.trust import AddressConfirmation, FileConfirmation
from engine.runtime.files import PRIVATE_MODE, replace_file
from engine.runtime.locks import released, take_lock

FILE = "trust.json"
RUNS = "trusted_runs"


class Record(BaseModel):
    """Content of the file with the person's confirmations."""

    model_config = ConfigDict(extra="ignore")

    schema_version: int = 1
    folders: dict[str, str] = Field(default_factory=dict)
    """Identity of each trusted project by its resolved path: another folder at the same path is
    another project."""
    addresses: list[AddressConfirmation] = Field(default_factory=list)
    files: list[FileConfirmation] = Field(default_factory=list)


def trust_folder() -> Path:
    return Path(platformdirs.user_config_dir("atelier"))


def read_record() -> Record:
    """Stored confirmations of trust; empty if there is no file. Raises Refused if unreadable."""
    file = trust_folder() / FILE
    try:
        return Record.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return Record()
    except (OSError, ValidationError) as error:
        raise Refused.of(
            "trust.unreadable",
            "The list of trusted projects and confirmed addresses cannot be read.",
            "Fix the file, or move it away and confirm again.",
            where=str(file),
            detail=str(error),
        ) from error


@contextlib.contextmanager
def edit_record() -> Iterator[Record]:
    """Lock and yield the confirmations of trust; changes in the block are saved at its end. Raises
    Refused if they cannot be read or saved."""
    folder = trust_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = take_lock(folder / f"{FILE}.lock", wait_s=None)
    except OSError as error:
        raise _not_written(folder, error) from error
    with released(lock):
        record = read_record()
        yield record
        try:
            replace_file(folder / FILE, record.model_dump_json(indent=1) + "\n", PRIVATE_MODE)
        except OSError as error:
            raise _not_written(folder, error) from error


def remember_run(run_id: str, spec: bytes) -> None:
    """Record that this run.json was written on this machine, or trusted here by the person. Raises
    Refused if that cannot be stored."""
    folder = trust_folder() / RUNS
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(_run_file(run_id), hashlib.sha256(spec).hexdigest() + "\n", PRIVATE_MODE)
    except OSError as error:
        raise _not_written(folder, error) from error


def is_known_run(run_id: str, spec: bytes) -> bool:
    """Whether a run.json with this content (`spec`) was recorded for this run id."""
    try:
        text = _run_file(run_id).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return False
    return text.strip() == hashlib.sha256(spec).hexdigest()


def _run_file(run_id: str) -> Path:
    """File named by a hash, since an id in a downloaded folder may be any text."""
    return trust_folder() / RUNS / hashlib.sha256(run_id.encode()).hexdigest()[:32]


def _not_written(folder: Path, error: OSError) -> Refused:
    return Refused.of(
        "trust.not_written",
        f"Your confirmation cannot be saved: {error.strerror}.",
        "Check free space and permissions of the folder.",
        where=str(folder),
    )
