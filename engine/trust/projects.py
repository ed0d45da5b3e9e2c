"""Trusted projects and runs: created by Atelier on this machine, or trusted by the person.

Others may be read, labelled, charted and exported. Their code is not executed, and none of their
data is sent.
"""

import ctypes
import os
import struct
import sys
from functools import cache
from pathlib import Path
from typing import Any

from engine.protocol.problems import Refused
from engine.protocol.requests.trust import TrustProject
from engine.trust.store import edit_record, is_known_run, read_record, remember_run

PROJECT, RUN = "project.toml", "run.json"
MOST_SPEC_BYTES = 2**26
HINT = (
    "Review its agent, settings and MCP servers; then choose “Trust this project” in the studio, "
    "or run `atelier trust {}`."
)


def trust_project(project: Path) -> None:
    """Record that the person trusts a folder and its runs. Raises Refused if it does not exist."""
    project = project.resolve()
    identity = folder_identity(project)
    if identity is None:
        raise Refused.of("project.missing", f"There is no folder {project}.", where=str(project))
    with edit_record() as record:
        record.folders[str(project)] = identity
    for folder in sorted(project.glob("runs/*")):
        trust_run(folder)


def trust_new_project(project: Path) -> None:
    """Record a folder that Atelier has just created as trusted; it has no runs yet."""
    with edit_record() as record:
        if (identity := folder_identity(project.resolve())) is not None:
            record.folders[str(project.resolve())] = identity


def trust_run(folder: Path) -> None:
    """Record the run.json in this folder as trusted, if there is one."""
    if (spec := _spec(folder)) is not None:
        remember_run(folder.name, spec)


def is_trusted(project: Path) -> bool:
    """Whether the person trusts this folder; another folder at the same path is not trusted. Raises
    Refused if the stored confirmations are unreadable."""
    project = project.resolve()
    known = read_record().folders.get(str(project))
    return known is not None and known == folder_identity(project)


def require_trust(project: Path) -> None:
    """Raise Refused unless the project is trusted."""
    if not is_trusted(project):
        raise _untrusted(f"The project {project.name}", project)


def require_run_trust(folder: Path) -> None:
    """Raise Refused unless the run was started on this machine, or was in its project when the
    person trusted that. A run folder outside of any project is trusted like a project."""
    project = project_of_run(folder)
    require_trust(project)
    spec = _spec(folder)
    if spec is not None and not is_known_run(folder.name, spec):
        raise _untrusted(f"The run {folder.name}", project)


def is_trusted_run(folder: Path) -> bool:
    """Whether a run and its project are trusted."""
    try:
        require_run_trust(folder)
    except Refused:
        return False
    return True


def project_of_run(folder: Path) -> Path:
    """Project folder of a run folder, or the run folder itself if it is outside of any project."""
    folder = folder.resolve()
    project = folder.parents[1] if len(folder.parents) > 1 else folder
    within = folder.parent.name == "runs" and (project / PROJECT).is_file()
    return project if within else folder


def _spec(folder: Path) -> bytes | None:
    """Content of run.json; None if it is missing or not a regular file."""
    try:
        descriptor = os.open(folder / RUN, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as source:
        status = os.fstat(descriptor)
        is_file = (status.st_mode & 0o170000) == 0o100000
        return source.read(MOST_SPEC_BYTES) if is_file else None


def _untrusted(subject: str, project: Path) -> Refused:
    return Refused.of(
        "project.untrusted",
        f"{subject} is not trusted: no code is run and nothing is sent.",
        HINT.format(project),
        where=str(project),
        detail=TrustProject(project=str(project)).model_dump_json(),
    )


AT_FDCWD, STATX_BTIME = -100, 0x800
STATX_BYTES, MASK_AT, BTIME_AT = 256, 0, 80
"""Layout of `struct statx` (man 2 statx)."""


def folder_identity(folder: Path) -> str | None:
    """Inode and creation time of a folder; None if there is no folder."""
    try:
        if not folder.is_dir():
            return None
        return f"{folder.stat().st_ino}.{_born_ns(folder)}"
    except OSError:
        return None


def _born_ns(folder: Path) -> int:
    """Creation time of a folder in nanoseconds since 1970; 0 if it is unknown."""
    if sys.platform == "darwin":
        return int(folder.stat().st_birthtime * 1e9)
    call = _statx()
    if call is None:
        return 0
    found = ctypes.create_string_buffer(STATX_BYTES)
    if call(AT_FDCWD, os.fsencode(folder), 0, STATX_BTIME, found) != 0:
        return 0
    mask = struct.unpack_from("=I", found.raw, MASK_AT)[0]
    seconds, nanoseconds = struct.unpack_from("=qI", found.raw, BTIME_AT)
    return int(seconds) * 10**9 + int(nanoseconds) if mask & STATX_BTIME else 0


@cache
def _statx() -> Any:
    """Function `statx` of the C library; None if it is missing."""
    return getattr(ctypes.CDLL(None), "statx", None) if sys.platform == "linux" else None
