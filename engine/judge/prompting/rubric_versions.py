"""Project rubric and its versions: `rubric.md`, and `rubric.versions.jsonl` beside it.

Every text that was saved here, or found changed by another program, is kept as a whole, one per
line, so that any two can be compared and each restored.
"""

import contextlib
import getpass
import json
import time
from pathlib import Path

from pydantic import ValidationError

from engine.judge.prompting.rubric import parse_rubric
from engine.protocol.problems import AtelierError, ConfigError, in_one_line
from engine.protocol.records.judging import RubricVersion, RubricView, version_of
from engine.runtime.files import replace_file
from engine.trust.files import MOST_TEXT_BYTES, read_regular

OUTSIDE = "outside"
MOST_HISTORY_BYTES = 2**28


def view_rubric(file: Path) -> RubricView:
    """Return the rubric in `file` and its stored versions. A text changed by another program is
    added to the versions. Raises ConfigError if a file cannot be read."""
    source = _read(file)
    versions = read_versions(file)
    if source.strip() and not (versions and versions[-1].source == source):
        with contextlib.suppress(OSError):  # a read-only project is shown as it is
            versions = _append(file, versions, source, OUTSIDE)
    try:
        rubric, problem = parse_rubric(source, file.name), None
    except AtelierError as error:
        rubric, problem = None, error.problem
    return RubricView(
        source=source,
        version=version_of(source),
        problem=problem,
        criteria=rubric.criteria if rubric else (),
        versions=versions,
    )


def save_rubric(file: Path, source: str, who: str = "") -> RubricView:
    """Write a rubric and store it as a version by `who`. Raises ConfigError if invalid."""
    parse_rubric(source, file.name)
    versions = view_rubric(file).versions
    if not (versions and versions[-1].source == source):
        _append(file, versions, source, who or getpass.getuser())
    replace_file(file, source)
    return view_rubric(file)


def read_versions(file: Path) -> list[RubricVersion]:
    """Return the stored versions of the rubric in `file`, oldest first. Raises ConfigError with the
    invalid line."""
    beside = versions_file(file)
    try:
        text = read_regular(beside, MOST_HISTORY_BYTES, follow=False).decode()
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ConfigError.of(
            "rubric.bad_history",
            f"The version history of the rubric cannot be read: {in_one_line(error)[:200]}.",
            "Move the history file away; this does not change the rubric.",
            where=str(beside),
        ) from error
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            found += [RubricVersion.model_validate_json(line)] if line.strip() else []
        except ValidationError as error:
            raise ConfigError.of(
                "rubric.bad_history",
                "This line of the version history is not a version of a rubric.",
                "Delete the line, or move the file away; this does not change the rubric.",
                where=f"{beside}:{number}",
                detail=str(error)[:500],
            ) from error
    return found


def versions_file(file: Path) -> Path:
    return file.with_name(f"{file.stem}.versions.jsonl")


def _append(
    file: Path, versions: list[RubricVersion], source: str, who: str
) -> list[RubricVersion]:
    number = versions[-1].number + 1 if versions else 1
    version = RubricVersion(
        number=number, version=version_of(source), source=source, at=time.time(), who=who
    )
    kept = [*versions, version]
    lines = (json.dumps(one.model_dump(), ensure_ascii=False) + "\n" for one in kept)
    replace_file(versions_file(file), "".join(lines))
    return kept


def _read(file: Path) -> str:
    try:
        return read_regular(file, MOST_TEXT_BYTES).decode("utf-8-sig") if file.exists() else ""
    except (OSError, ValueError) as error:
        raise ConfigError.of(
            "rubric.unreadable", "The rubric cannot be read.", where=str(file), detail=str(error)
        ) from error
