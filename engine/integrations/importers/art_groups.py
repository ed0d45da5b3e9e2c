"""Reader of trajectory groups in the three file formats of ART.

Parquet version 1 has a flat row per trajectory (ART up to 0.5.18). Version 2 adds a JSON column
with everything (OpenPipe/ART pull request 762). The older JSON Lines have a line per group.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from engine.integrations.importers.chat_messages import WRONG, load_json
from engine.integrations.importers.jsonl import read_lines
from engine.integrations.importers.parquet import ParquetReader, Row
from engine.protocol.problems import ConfigError


class ArtAttempt(NamedTuple):
    """A trajectory as ART's JSON, and its place in the file."""

    where: str
    data: dict[str, Any]


class ArtGroup(NamedTuple):
    """Group as ART stores it."""

    where: str
    data: dict[str, Any]
    """`metadata`, `metrics`, `logs` and `exceptions`, if the format has them."""
    attempts: list[ArtAttempt]


def read_groups(file: Path, reader: ParquetReader) -> list[ArtGroup]:
    """Return the groups of an ART file (.jsonl or Parquet) in order. Raises ConfigError with the
    invalid line or row."""
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
    """Return the ConfigError for an invalid row or line (`what`) at the place `where`."""
    return ConfigError.of(
        f"attempts.wrong_{what}",
        f"This {what} is not an ART trajectory.",
        f"Copy the folder again. If ART itself wrote this {what}, report this error.",
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
            ArtAttempt(f"{where}, trajectory {number}", _object(one))
            for number, one in enumerate(data["trajectories"], 1)
        ]
    except WRONG as error:
        raise bad_row("line", where, error) from error
    return ArtGroup(where, data, attempts)


def _of_row(row: Row) -> tuple[int, dict[str, Any], dict[str, Any] | None]:
    """Return group number, group data, and the trajectory (None for an empty group)."""
    version = row.get("format_version")
    if version not in (None, 2):
        raise ValueError(f"format version {version} is unknown")
    number = row["group_index"]
    if not isinstance(number, int):
        raise ValueError("group_index is not a number")
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
    """Return the trajectory of a version 1 row, with `additional_histories` if present."""
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
        raise ValueError(f"{value!r:.80} is not an object")
    return value
