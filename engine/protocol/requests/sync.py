"""Folders that go to another engine, and files that come back: by content, never by date."""

from typing import Literal

from pydantic import Field

from engine.protocol.base import Request, Value
from engine.protocol.identifiers import FileBytes, RelativePath, RunId, Sha256

MOST_FILES = 200_000
"""Most files in one folder."""


class FileEntry(Value):
    """One file of a folder, known by what is in it."""

    path: RelativePath
    bytes: FileBytes
    sha256: Sha256
    executable: bool = False


class Manifest(Value):
    """A whole folder: files that are not named are not part of it."""

    files: list[FileEntry] = Field(default_factory=list, max_length=MOST_FILES)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class SyncFolder(Request):
    """A folder there is to be exactly this; what it stores itself (runs) stays."""

    folder: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,120}$")
    """Its name there."""
    run: RunId | Literal[""] = ""
    """A run in that folder, by its id, is meant instead: all of it."""
    place: Literal["workspace", "models"] = "workspace"
    """Among projects, or in the cache of models."""
    manifest: Manifest


class Missing(Value):
    """What has to be sent before the folder can be so."""

    sha256: list[Sha256] = Field(max_length=MOST_FILES)
    bytes: int = Field(ge=0)


class Begun(Value):
    """How much of one content has arrived."""

    bytes: FileBytes


class Synced(Value):
    """The folder, as it is now."""

    path: str
    """On that machine."""
    changed: int = Field(ge=0)
    removed: int = Field(ge=0)
