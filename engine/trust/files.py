"""Files named by a project's settings: regular files inside its folder, symbolic links resolved.

Any other file is read only if the person has confirmed it for this project.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import AtelierError, ConfigError, Problem
from engine.protocol.requests.trust import FileConfirmation
from engine.trust.store import edit_record, read_record

MOST_TEXT_BYTES = 2**22


def confirm_file(project: Path, path: Path) -> None:
    """Store the permission that a project reads the file `path` outside of its folder. Raises
    Refused if it cannot be stored."""
    wanted = FileConfirmation(project=str(project.resolve()), path=str(path.resolve()))
    with edit_record() as record:
        if wanted not in record.files:
            record.files.append(wanted)


def project_file(project: Path, name: str, setting: str) -> Path:
    """Resolved path of the project's file `name`, as given in `setting`; it need not exist. Raises
    ConfigError if it is outside of the project and not confirmed, or is not a regular file."""
    root = project.resolve()
    try:
        target = (root / Path(name).expanduser()).resolve()
        is_inside = target.is_relative_to(root)
        status = target.stat() if target.exists() else None
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError.of(
            "file.bad_name",
            f"{setting} is not a readable file: {name[:200]!a}.",
            "Set a path relative to the project folder.",
            where=setting,
            detail=str(error),
        ) from error
    if not is_inside:
        _require_confirmed(FileConfirmation(project=str(root), path=str(target)), setting)
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise ConfigError.of(
            "file.not_regular",
            f"{setting} names {name[:200]!a}, which is not a regular file.",
            "Set a regular file, not a folder, pipe or device.",
            where=str(target),
        )
    return target


def read_regular(file: Path, most_bytes: int, follow: bool = True) -> bytes:
    """Content of a regular file of at most `most_bytes` bytes; never blocks on a pipe. Raises
    OSError, also for a symbolic link unless `follow`, and ValueError with the reason if it is
    larger or not a regular file."""
    with open_regular(file, follow) as source:
        content = source.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it is larger than {most_bytes / 2**20:g} MB")
    return content


def open_regular(file: Path, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading; never blocks on a pipe or device. Raises OSError, and
    ValueError with the reason if it is not a regular file."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(file, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("it is not a regular file")
    return os.fdopen(descriptor, "rb")


def file_problems(project: Path, config: ProjectConfig) -> list[Problem]:
    """Problems of files in the project's settings that may not be read: outside of the project and
    not confirmed, or not regular."""
    found = []
    for setting, name in named_files(config):
        try:
            project_file(project, name, setting)
        except AtelierError as error:
            found.append(error.problem)
    return found


def check_files(project: Path, config: ProjectConfig) -> None:
    """Raise ConfigError for the first file named in the settings that may not be read."""
    if problems := file_problems(project, config):
        raise ConfigError(problems[0])


def named_files(config: ProjectConfig) -> list[tuple[str, str]]:
    """Settings that name files of the project, as (setting, file name)."""
    agent, warmup = config.agent, config.train.warmup
    rows = [
        ("agent.file", None if agent.command or agent.source == "outside" else agent.file),
        ("agent.requirements", agent.requirements),
        ("scenarios.train", config.scenarios.train),
        ("scenarios.validation", config.scenarios.validation),
        ("judge.rubric", config.judge.rubric),
        ("sft.data", config.sft.data),
        ("sft.validation", config.sft.validation),
        ("train.warmup.file", warmup.file if warmup else None),
    ]
    return [(setting, name) for setting, name in rows if name]


def _require_confirmed(wanted: FileConfirmation, setting: str) -> None:
    if wanted in read_record().files:
        return
    raise ConfigError.of(
        "file.outside",
        f"The file in {setting} is outside the project: {wanted.path}.",
        "Copy the file into the project, or confirm it: "
        f"`atelier trust {wanted.project} --confirm-file {wanted.path}`.",
        where=setting,
        detail=wanted.model_dump_json(),
    )
