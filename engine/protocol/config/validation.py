"""Validation of project settings: every defect becomes a Problem with the line of its key."""

import copy
import difflib
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from engine.protocol.config.algorithm import UNIONS
from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.sweep import Range, SettingValue, unsuitable
from engine.protocol.problems import ConfigError, Problem

FILE = "project.toml"


def changed_config(config: ProjectConfig, overrides: dict[str, Any]) -> ProjectConfig:
    """Return `config` with overrides (dotted key → value, None: default). Raises ConfigError."""
    values = config.model_dump(mode="json")
    for key, value in overrides.items():
        set_key(values, key, value)
    return checked_config(values)


def checked_config(values: dict[str, Any], text: str = "") -> ProjectConfig:
    """Parse nested settings (section → key → value). `text` is the file's content, used for line
    numbers of problems. Raises ConfigError with the first problem."""
    if problems := config_problems(values, text):
        raise ConfigError(problems[0])
    return ProjectConfig.model_validate(values)


def config_problems(values: dict[str, Any], text: str = "") -> list[Problem]:
    """Find the problems of nested settings, as parsed from TOML; `text` is the file, from which
    line numbers are taken (empty: none)."""
    try:
        config = ProjectConfig.model_validate(values)
    except ValidationError as error:
        return [_config_problem(detail, text) for detail in error.errors()]
    return [_in_sweep(*found, text) for found in parameter_problems(config, values)]


def parameter_problems(
    config: ProjectConfig, values: dict[str, Any]
) -> Iterator[tuple[str, Problem]]:
    """Find swept settings that do not exist, cannot be swept, or have an invalid value; yields the
    key and its first problem. `values` are the nested settings that `config` was parsed from."""
    for key, swept in config.sweep.parameters.items():
        if reason := unsuitable(key, config.judge.enabled, config.sweep.prune):
            yield key, Problem(code="config.bad_sweep", message=f"{key} {reason}")
            continue
        tried = [swept.low, swept.high] if isinstance(swept, Range) else swept
        for value in tried:
            if problem := _value_problem(values, key, value):
                yield key, problem
                break


def _value_problem(values: dict[str, Any], key: str, value: SettingValue) -> Problem | None:
    """First problem of the settings with another value for one key."""
    changed = copy.deepcopy(values)
    try:
        set_key(changed, key, value)
        ProjectConfig.model_validate({**changed, "sweep": {}})
    except ConfigError as error:
        return error.problem
    except ValidationError as error:
        return _config_problem(error.errors()[0], "")
    return None


def _in_sweep(key: str, problem: Problem, text: str) -> Problem:
    """The problem of a swept setting, located at its line under [sweep]."""
    path = ["sweep", "parameters", *key.split(".")]
    line = _line_of(text, path)
    where = f"{FILE}, line {line}" if line else ".".join(path)
    return problem.model_copy(update={"where": where, "detail": f"sweep.parameters.{key}"})


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
    if path[:2] == ["sweep", "parameters"]:
        del path[3:4]  # the kind of the value: list or range
    line = _line_of(text, ".".join(path).split("."))
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
    path = list(path)
    if path[:2] == ["sweep", "parameters"]:
        return Range if len(path) == 3 else None
    parts = iter(path)
    for part in parts:
        field = model.model_fields.get(part)
        options = [field.annotation, *getattr(field.annotation, "__args__", ())] if field else []
        models = [o for o in options if isinstance(o, type) and issubclass(o, BaseModel)]
        if not models:
            return None
        model = models[0]
        if field and get_origin(field.annotation) is dict:
            next(parts, None)  # the name of an entry, such as a label field
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
