"""Fingerprints of a project's files, to avoid overwriting a file that changed after it was read."""

import hashlib
import stat
from functools import lru_cache
from pathlib import Path

from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import ConfigError, Refused
from engine.runtime.files import sha256_of
from engine.storage.project import FILE
from engine.trust.files import named_files, project_file

MISSING = ""
LARGEST_BYTES = 256 << 20
"""Size in bytes above which a fingerprint is made of size and modification time only."""


def fingerprint(file: Path) -> str:
    """SHA-256 of a regular file in hexadecimal digits; MISSING if there is no such file."""
    try:
        found = file.stat()
        if not stat.S_ISREG(found.st_mode):
            return MISSING
        return _fingerprint(file, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
    except OSError:
        return MISSING


@lru_cache(maxsize=512)
def _fingerprint(file: Path, changed_ns: int, inode_changed_ns: int, size: int) -> str:
    if size > LARGEST_BYTES:
        return hashlib.sha256(f"{size} {changed_ns}".encode()).hexdigest()
    return sha256_of(file)


def fingerprints(project: Path, config: ProjectConfig | None) -> dict[str, str]:
    """Fingerprints by relative path of project.toml and the files that the settings name (`config`
    None: of project.toml only). Files that must not be read, such as those outside of the project,
    are left out."""
    files = [project / FILE]
    for setting, name in named_files(config) if config is not None else []:
        try:
            files.append(project_file(project, name, setting))
        except ConfigError:
            continue
    return {_name(file, project): fingerprint(file) for file in files}


def check_unchanged(file: Path, read: str) -> None:
    """Raise Refused if a file's fingerprint differs from `read`, which a client received when it
    read the file; no check if `read` is empty."""
    if read and fingerprint(file) != read:
        raise Refused.of(
            "file.changed",
            f"{file.name} was changed by another program after Atelier had read it.",
            "Compare both versions, then keep yours or the version in the file.",
            where=str(file),
        )


def _name(file: Path, project: Path) -> str:
    return file.relative_to(project).as_posix() if file.is_relative_to(project) else str(file)
