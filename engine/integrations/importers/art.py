"""An .art folder → lots: finds the model, its splits and steps, and reads file by file.

`.art/{project}/models/{name}/trajectories/{split}/{step:04d}.parquet`, or `.jsonl` before 2026.
Steps stay as they are. `train` is the training split; `val` is validation, and every other split
joins it with its name before the scenario.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from engine.integrations.importers.art_trajectories import attempts_of
from engine.integrations.importers.chat_messages import (
    WRONG,
    Source,
    TrajectoryBatch,
    empty_source,
    load_json,
)
from engine.integrations.importers.jsonl import read_lines
from engine.integrations.importers.parquet import ParquetReader, Row
from engine.protocol.problems import ConfigError
from engine.protocol.records.runs import Split, Trajectory

ATTEMPTS = "trajectories"
DEEPEST = 4
"""Folders between a project's own and the attempts: .art, project, `models`, model."""
SUFFIXES = (".parquet", ".jsonl")
KNOWN: dict[str, Split] = {"train": "train", "val": "validation", "validation": "validation"}
HINT = "Name the folder of a model: .art/PROJECT/models/NAME."


class ArtFile(NamedTuple):
    """Content of one file of ART."""

    step: int
    split: Split
    prefix: str
    """Before the scenarios of a split that we have no name for."""
    path: Path


def open_art(folder: Path, model: str = "") -> Source:
    """Raises ConfigError where there is no model, or more than one and none is named."""
    home = find_art_model(folder, model)
    files, notes = _files(home)
    if not files:
        raise empty_source(home / ATTEMPTS, "ART writes them while it trains.")
    last = max((file.step for file in files if file.split == "train"), default=0)
    return Source(home.name, last, lambda: _lots(files), notes)


def open_art_file(file: Path) -> Source:
    """Open one Parquet file as a training step."""
    step = int(file.stem) if file.stem.isdecimal() else 1
    return Source(file.stem, step, lambda: _lots([ArtFile(step, "train", "", file)]))


def find_art_model(folder: Path, model: str = "") -> Path:
    """The folder of the one model in here, or of the one that is named."""
    places = ["*/" * depth + ATTEMPTS for depth in range(DEEPEST + 1)]
    homes = sorted({found.parent for place in places for found in folder.glob(place)})
    wanted = [home for home in homes if not model or home.name == model]
    if len(wanted) == 1:
        return wanted[0]
    names = ", ".join(str(home.relative_to(folder)) for home in homes)
    if not homes:
        raise ConfigError.of(
            "import.no_model", "There are no ART trajectories in this folder.", HINT, str(folder)
        )
    if not wanted:
        words = f"There is no model {model} in this folder; it holds {names}."
        raise ConfigError.of("import.no_model", words, HINT, str(folder))
    raise ConfigError.of(
        "import.which_model",
        f"This folder holds {len(homes)} models: {names}.",
        "Import one of them: name its folder, or --model NAME.",
        where=str(folder),
    )


def _files(home: Path) -> tuple[list[ArtFile], tuple[str, ...]]:
    """In the order of training, and what was left aside."""
    found: dict[tuple[str, int], ArtFile] = {}
    notes = []
    for path in sorted((home / ATTEMPTS).glob("*/*")):
        split = path.parent.name
        if not path.resolve().is_relative_to(home.resolve()):
            notes.append(f"{split}/{path.name} was left out: it is a link out of the folder.")
            continue
        if path.suffix not in SUFFIXES or not path.stem.isdecimal():
            notes.append(f"{split}/{path.name} was left out: its name is not that of a step.")
            continue
        known = KNOWN.get(split)
        prefix = "" if known else f"{split}/"
        file = ArtFile(int(path.stem), known or "validation", prefix, path)
        if other := found.get((split, file.step)):  # ART has migrated it: Parquet comes last
            notes.append(f"{split}/{other.path.name} was left out: {path.name} is the same step.")
        found[split, file.step] = file
    return sorted(found.values(), key=lambda f: (f.step, f.split, f.prefix)), tuple(notes)


def _lots(files: list[ArtFile]) -> Iterator[TrajectoryBatch]:
    with ParquetReader() as reader:
        places = dict.fromkeys((file.step, file.split) for file in files)
        for step, split in places:
            here = [file for file in files if (file.step, file.split) == (step, split)]
            lot = _lot(here, step, split, reader)
            if lot.groups:
                yield lot


def _lot(files: list[ArtFile], step: int, split: Split, reader: ParquetReader) -> TrajectoryBatch:
    groups: list[list[Trajectory]] = []
    dropped = 0
    for file in files:
        for found in read_groups(file.path, reader):
            made, lost = attempts_of(found, split, step, len(groups), file.prefix)
            dropped += lost
            if made:
                groups.append(made)
    return TrajectoryBatch(split, step, groups, dropped)


class ArtAttempt(NamedTuple):
    """A trajectory in the form of ART's JSON, and where it stands."""

    where: str
    data: dict[str, Any]


class ArtGroup(NamedTuple):
    """Group as ART stores it."""

    where: str
    data: dict[str, Any]
    """`metadata`, `metrics`, `logs` and `exceptions`, each where the format has it."""
    attempts: list[ArtAttempt]


def read_groups(file: Path, reader: ParquetReader) -> list[ArtGroup]:
    """In their order. Raises ConfigError with the wrong line or row."""
    if file.suffix == ".jsonl":
        return [_of_line(line, f"{file}:{number}") for number, line in read_lines(file)]
    groups: dict[int, ArtGroup] = {}
    for where, row in _rows(file, reader):
        try:
            number, found, attempt = _of_row(row)
        except WRONG as error:
            raise bad_row("row", where, error) from error
        group = groups.setdefault(number, ArtGroup(where, found, []))
        if attempt is not None:
            group.attempts.append(ArtAttempt(where, attempt))
    return [groups[number] for number in sorted(groups)]


def bad_row(what: str, where: str, error: Exception) -> ConfigError:
    """Error for an invalid row or line of ART."""
    return ConfigError.of(
        f"attempts.wrong_{what}",
        f"This {what} is not an ART trajectory.",
        "Copy the folder again; if it is as ART wrote it, please report this.",
        where=where,
        detail=f"{type(error).__name__}: {error}"[:500],
    )


def _rows(file: Path, reader: ParquetReader) -> Iterator[tuple[str, Row]]:
    for number, row in reader.rows(file):
        yield f"{file}, row {number}", row


def _of_line(line: str, where: str) -> ArtGroup:
    try:
        data = load_json(line)
        attempts = [
            ArtAttempt(f"{where}, attempt {number}", _object(one))
            for number, one in enumerate(data["trajectories"], 1)
        ]
    except WRONG as error:
        raise bad_row("line", where, error) from error
    return ArtGroup(where, data, attempts)


def _of_row(row: Row) -> tuple[int, dict[str, Any], dict[str, Any] | None]:
    """(number of the group, the group, the attempt or None where the row stands for none)."""
    version = row.get("format_version")
    if version not in (None, 2):
        raise ValueError(f"version {version} of the format is not known")
    number = row["group_index"]
    if not isinstance(number, int):
        raise ValueError("group_index is no number")
    if version == 2:
        attempt = row["trajectory_json"]
        return number, _json(row["group_json"]), None if attempt is None else _json(attempt)
    group = {
        "metadata": _json(row.get("group_metadata")),
        "metrics": _json(row.get("group_metrics")),
        "logs": row.get("group_logs") or [],
    }
    if row["reward"] is None and row["messages"] is None:
        return number, group, None
    return number, group, _flat(row)


def _flat(row: Row) -> dict[str, Any]:
    """A row of version 1; files that ART has migrated have further histories besides."""
    return {
        "messages_and_choices": [_message(one) for one in row["messages"] or []],
        "reward": row["reward"],
        "metrics": _json(row["metrics"]),
        "metadata": _json(row["metadata"]),
        "tools": load_json(row["tools"]) if row["tools"] else [],
        "logs": row["logs"] or [],
        "additional_histories": load_json(row.get("additional_histories") or "[]"),
    }


def _message(flat: dict[str, Any]) -> dict[str, Any]:
    calls = load_json(flat["tool_calls"]) if flat["tool_calls"] else []
    role = flat["role"] or ("assistant" if flat["trainable"] else None)
    return {**flat, "role": role, "tool_calls": calls}


def _json(text: str | None) -> dict[str, Any]:
    return _object(load_json(text)) if text else {}


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r:.80} is no object")
    return value
