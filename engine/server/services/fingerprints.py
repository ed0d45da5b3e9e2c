"""Fingerprints of a project's files: a file that changed after it was read is not overwritten."""

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
"""Size in bytes beyond which size and modification time are the fingerprint, not the content."""


def fingerprint(file: Path) -> str:
    """SHA-256 of a regular file in hexadecimal digits; MISSING where there is none."""
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
    """Fingerprint of each file that the project consists of, by its path in the project. A file
    that must not be read is left out; the problems of the project name it."""
    files = [project / FILE]
    for setting, name in named_files(config) if config is not None else []:
        try:
            files.append(project_file(project, name, setting))
        except ConfigError:
            continue
    return {_name(file, project): fingerprint(file) for file in files}


def check_unchanged(file: Path, read: str) -> None:
    """Check that a file is as it was read. Raises Refused where it is not; an empty `read` is not
    compared."""
    if read and fingerprint(file) != read:
        raise Refused.of(
            "file.changed",
            f"{file.name} was changed by another program after it was read here.",
            "Compare both, then keep yours or the file's version.",
            where=str(file),
        )


def _name(file: Path, project: Path) -> str:
    return file.relative_to(project).as_posix() if file.is_relative_to(project) else str(file)
