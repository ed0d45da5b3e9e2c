"""Files that a project names: regular files inside of its folder, symbolic links resolved.

Another file is read only where the person has confirmed it for this project.
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
    """Remember that this project may read this file. Raises Refused."""
    wanted = FileConfirmation(project=str(project.resolve()), path=str(path.resolve()))
    with edit_record() as record:
        if wanted not in record.files:
            record.files.append(wanted)


def project_file(project: Path, name: str, setting: str) -> Path:
    """The file that a setting names, resolved; it need not exist. Raises ConfigError where it lies
    outside of the project and is not confirmed, or is no regular file."""
    root = project.resolve()
    try:
        target = (root / Path(name).expanduser()).resolve()
        is_inside = target.is_relative_to(root)
        status = target.stat() if target.exists() else None
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError.of(
            "file.bad_name",
            f"{setting} names no file that can be read: {name[:200]!a}.",
            "Name a file relative to the project.",
            where=setting,
            detail=str(error),
        ) from error
    if not is_inside:
        _require_confirmed(FileConfirmation(project=str(root), path=str(target)), setting)
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise ConfigError.of(
            "file.not_regular",
            f"{setting} names {name[:200]!a}, which is not a regular file.",
            "Name a file, not a folder, pipe or device.",
            where=str(target),
        )
    return target


def read_regular(file: Path, most_bytes: int, follow: bool = True) -> bytes:
    """The content of a regular file of at most so many bytes, without waiting for a pipe. Raises
    OSError, also for a link where those are not to be followed, and ValueError with the reason
    where it is no such file."""
    with open_regular(file, follow) as source:
        content = source.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it is larger than {most_bytes / 2**20:g} MB")
    return content


def open_regular(file: Path, follow: bool = True) -> BinaryIO:
    """A regular file, open for reading; a pipe or device is never waited for. Raises OSError, and
    ValueError with the reason where it is none."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(file, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("it is no regular file")
    return os.fdopen(descriptor, "rb")


def file_problems(project: Path, config: ProjectConfig) -> list[Problem]:
    """Everything that is wrong with the places of the files that the settings name."""
    found = []
    for setting, name in named_files(config):
        try:
            project_file(project, name, setting)
        except AtelierError as error:
            found.append(error.problem)
    return found


def check_files(project: Path, config: ProjectConfig) -> None:
    """Raises ConfigError for the first file of the settings that lies outside, or is no file."""
    if problems := file_problems(project, config):
        raise ConfigError(problems[0])


def named_files(config: ProjectConfig) -> list[tuple[str, str]]:
    """Settings that name files of the project, with the names."""
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
        f"{wanted.path} is outside the project, but {setting} names it.",
        "Copy it into the project; or confirm it: "
        f"`atelier trust {wanted.project} --confirm-file {wanted.path}`.",
        where=setting,
        detail=wanted.model_dump_json(),
    )
