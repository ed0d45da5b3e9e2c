"""Cursor of a tracker: how far the events of a run were sent. A small file in the run folder, with
one sender at a time."""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from engine.protocol.config.tracking import TRACKERS, TrackerName
from engine.protocol.problems import Problem, Refused
from engine.runtime.files import replace_file
from engine.runtime.locks import Busy, released, take_lock

FOLDER = "track"


class Cursor(BaseModel):
    """Position of a tracker: all events up to `seq` have arrived at `target`."""

    model_config = ConfigDict(extra="ignore")

    target: str = ""
    """Hash of service and destination; another target starts from the beginning."""
    seq: int = 0
    url: str = ""
    refused: int = 0
    """Number of metrics or spans that the service rejected permanently."""
    refusal: str = ""
    """Reason for the last rejected item, worded to follow the tracker's name."""
    problem: Problem | None = None
    """Last problem of the tracker."""


def read_cursor(run: Path, name: TrackerName) -> Cursor | None:
    """Stored position up to which a run was sent to a tracker; None if there is none or it is
    damaged. The run is then sent from the beginning; trackers skip duplicates where they can."""
    with contextlib.suppress(OSError, ValidationError):
        return Cursor.model_validate_json(_file(run, name).read_text())
    return None


def cursor_for(run: Path, name: TrackerName, target: str) -> Cursor:
    """Stored position of the run's tracker; a new one if `target` (hash by `target_of`) differs."""
    known = read_cursor(run, name)
    return known if known and known.target == target else Cursor(target=target)


def write_cursor(run: Path, name: TrackerName, cursor: Cursor) -> None:
    """Store the cursor of a tracker. Raises OSError."""
    file = _file(run, name)
    file.parent.mkdir(exist_ok=True)
    replace_file(file, cursor.model_dump_json(indent=1))


@contextlib.contextmanager
def hold_tracker(run: Path, name: TrackerName) -> Iterator[None]:
    """Lock a tracker of a run for the block. Raises Refused if another engine holds it."""
    (run / FOLDER).mkdir(exist_ok=True)
    try:
        descriptor = take_lock(run / FOLDER / f"{name}.lock")
    except Busy:
        raise Refused.of(
            "track.busy",
            f"Another engine already uploads this run to {TRACKERS[name]}.",
            "Wait until that upload has finished.",
        ) from None
    with released(descriptor):
        yield


def target_of(settings: dict[str, object]) -> str:
    """Return a hash (12 hex digits) of the settings that define the destination."""
    where = {key: value for key, value in settings.items() if key not in ("on", "content")}
    return hashlib.sha256(json.dumps(where, sort_keys=True).encode()).hexdigest()[:12]


def _file(run: Path, name: TrackerName) -> Path:
    return run / FOLDER / f"{name}.json"
