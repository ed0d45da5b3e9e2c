"""Content-addressed transfer of folders between engines; modification times are never compared."""

from typing import Literal

from pydantic import Field

from engine.protocol.base import Request, Value
from engine.protocol.identifiers import FileBytes, RelativePath, RunId, Sha256

MOST_FILES = 200_000
"""Maximum number of files in a folder."""


class FileEntry(Value):
    """File of a folder, identified by its hash."""

    path: RelativePath
    bytes: FileBytes
    sha256: Sha256
    executable: bool = False


class Manifest(Value):
    """Complete list of a folder's files; other files are not part of the folder."""

    files: list[FileEntry] = Field(default_factory=list, max_length=MOST_FILES)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class SyncFolder(Request):
    """Make a remote folder match a manifest; runs stored in it are preserved."""

    folder: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,120}$")
    """Name of the remote folder."""
    run: RunId | Literal[""] = ""
    """Run id, to transfer that run of the folder instead."""
    place: Literal["workspace", "models"] = "workspace"
    """Destination: among projects, or in the model cache."""
    manifest: Manifest


class Missing(Value):
    """Contents that must be uploaded before the folder is complete."""

    sha256: list[Sha256] = Field(max_length=MOST_FILES)
    bytes: int = Field(ge=0)


class Begun(Value):
    """Upload progress of one content."""

    bytes: FileBytes


class Synced(Value):
    """Synchronized folder."""

    path: str
    """Path on the remote machine."""
    changed: int = Field(ge=0)
    removed: int = Field(ge=0)


LAST = "Atelier-Last-Seq"
"""Header with the sequence number of the last event in the page."""
KNOWN = "Atelier-Known-Seq"
"""Header with the sequence number of the run's last event at the time of the request."""
