"""Validation of project settings: every defect becomes a Problem with the line of its key."""

import difflib
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from engine.protocol.config.algorithm import UNIONS
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import ConfigError, Problem

FILE = "project.toml"


def changed_config(config: ProjectConfig, overrides: dict[str, Any]) -> ProjectConfig:
    """Return `config` with overrides (dotted key → value, None: default). Raises ConfigError."""
    values = config.model_dump(mode="json")
    for key, value in overrides.items():
        set_key(values, key, value)
    if problems := config_problems(values):
        raise ConfigError(problems[0])
    return ProjectConfig.model_validate(values)


def config_problems(values: dict[str, Any], text: str = "") -> list[Problem]:
    """Find the problems of nested settings, as parsed from TOML; `text` is the file, from which
    line numbers are taken (empty: none)."""
    try:
        ProjectConfig.model_validate(values)
    except ValidationError as error:
        return [_config_problem(detail, text) for detail in error.errors()]
    return []


def set_key(values: Any, key: str, value: Any, new_table: Callable[[], Any] = dict) -> None:
    """Set a dotted key ("train.lr") in nested tables, in place; the value None removes it.
    `new_table` creates a missing section. Raises ConfigError for a key below a value that is not a
    table."""
    *sections, name = key.split(".")
    for section in sections:
        if not isinstance(values, dict):
            raise _no_such(key)
        if values.get(section) is None:
            if value is None:
                return
            values[section] = new_table()
        values = values[section]
    if not isinstance(values, dict):
        raise _no_such(key)
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value


def _no_such(key: str) -> ConfigError:
    return ConfigError.of("config.unknown_key", f"There is no setting {key}.", where=key)


def _config_problem(detail: ErrorDetails, text: str) -> Problem:
    parts = [str(part) for part in detail["loc"]]
    path = [part for above, part in pairwise(["", *parts]) if above not in UNIONS]
    line = _line_of(text, path)
    where = f"{FILE}, line {line}" if line else ".".join(path)
    if detail["type"] == "extra_forbidden":
        return _unknown_key(path, where)
    words = detail["msg"].removeprefix("Input ").removeprefix("Value error, ")
    return Problem(
        code="config.bad_value",
        message=f"{'.'.join(path)} {words}.",
        hint=_field_help(path),
        where=where,
        detail=".".join(path),
    )


def _unknown_key(path: list[str], where: str) -> Problem:
    *sections, name = path
    model = _model_at(sections)
    names = list(model.model_fields) if model else []
    matches = difflib.get_close_matches(name, names, 1, 0.5)
    section = f" in [{'.'.join(sections)}]" if sections else ""
    hint = f"Did you mean `{matches[0]}`?" if matches else f"Available: {', '.join(names)}."
    return Problem(
        code="config.unknown_key",
        message=f"There is no `{name}`{section}.",
        hint=hint,
        where=where,
        detail=".".join(path),
    )


def _model_at(path: Iterable[str]) -> type[BaseModel] | None:
    model: type[BaseModel] = ProjectConfig
    for part in path:
        field = model.model_fields.get(part)
        options = [field.annotation, *getattr(field.annotation, "__args__", ())] if field else []
        models = [o for o in options if isinstance(o, type) and issubclass(o, BaseModel)]
        if not models:
            return None
        model = models[0]
    return model


def _field_help(path: list[str]) -> str:
    model = _model_at(path[:-1])
    field = model.model_fields.get(path[-1]) if model else None
    return (field.description or "").split("\n")[0] if field else ""


def _line_of(text: str, path: list[str]) -> int | None:
    """Find the line of a key in the text of a TOML file."""
    section: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if line.startswith("["):
            section = line.strip("[]").split("#")[0].strip("[] ").split(".")
            if section == path:
                return number
        elif "=" in line and not line.startswith("#"):
            key = [part.strip(" \"'") for part in line.split("=")[0].split(".")]
            full = [*section, *key]
            if full == path[: len(full)] or path == full[: len(path)]:
                return number
    return None
