"""Project folder ↔ typed objects. Reading never changes a file; writing is atomic.

`project.toml`, the scenario files and the agent belong to the user: errors name file and line, and
nothing is lost.
"""

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import tomlkit

from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.validation import FILE, checked_config, config_problems, set_key
from engine.protocol.problems import ConfigError, Problem, in_one_line
from engine.protocol.records.runs import Scenario, Split, SplitInfo
from engine.runtime.files import replace_file
from engine.runtime.text import parse_json, replace_surrogates
from engine.trust.files import project_file, read_regular

MOST_TOML_BYTES = 2**22
MOST_SCENARIO_BYTES = 2**30
TITLE_KEYS = ("title", "name", "question", "task", "prompt", "input", "text")


# project.toml


def load_config(project: Path, overrides: dict[str, Any] | None = None) -> ProjectConfig:
    """Read and check project.toml. `overrides` (dotted key → value) replace settings of the file.
    Raises ConfigError."""
    return load_settings(project, overrides)[1]


def load_settings(
    project: Path, overrides: dict[str, Any] | None = None
) -> tuple[dict[str, Any], ProjectConfig]:
    """Read and check project.toml like `load_config`; returns the nested settings that it names,
    without defaults, and the parsed ones. Raises ConfigError."""
    text = read_toml(project)
    values = _parse(text)
    for key, value in (overrides or {}).items():
        set_key(values, key, value)
    return values, checked_config(values, text)


def read_toml(project: Path) -> str:
    """Return the text of project.toml. Raises ConfigError if it is missing or unreadable."""
    file = project / FILE
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_TOML_BYTES:
            raise ConfigError.of(
                "project.unreadable",
                f"{FILE} is larger than {MOST_TOML_BYTES // 2**20} MB, or is not a regular file.",
                "Replace it with a smaller text file.",
                where=str(file),
            )
        return file.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError.of(
            "project.missing",
            f"{project} is not a project: it has no {FILE}.",
            "Choose a folder that contains project.toml, or create a project.",
            where=str(file),
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError.of(
            "project.not_utf8", f"{FILE} is not UTF-8.", "Save the file as UTF-8.", where=str(file)
        ) from error
    except OSError as error:
        raise ConfigError.of(
            "project.unreadable", f"{FILE} cannot be read: {error.strerror}.", where=str(file)
        ) from error


def check_text(text: str) -> list[Problem]:
    """Return all problems in the text of a project.toml."""
    try:
        return config_problems(_parse(text), text)
    except ConfigError as error:
        return [error.problem]


def edit_text(text: str, values: dict[str, Any]) -> str:
    """Set dotted keys in the text of a project.toml (None removes one) and return the new text.
    Comments, order and spacing stay. Raises ConfigError if it is not TOML."""
    if not values:
        return text
    try:
        document = tomlkit.parse(text)
    except ValueError as error:
        _parse(text)  # says what is wrong, and where
        raise ConfigError.of(
            "config.bad_toml", f"{in_one_line(error)}.", "Fix the line.", where=FILE
        ) from error
    for key, value in values.items():
        set_key(document, key, value, tomlkit.table)
    return tomlkit.dumps(document)


def write_toml(project: Path, text: str) -> None:
    """Replace project.toml by `text`. If the text has problems, raises ConfigError with the first
    one and writes nothing."""
    if problems := check_text(text):
        raise ConfigError(problems[0])
    replace_file(project / FILE, text)


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ConfigError.of(
            "config.bad_toml",
            f"{FILE} is nested too deeply.",
            "Use fewer levels of tables.",
            where=FILE,
        ) from error
    except tomllib.TOMLDecodeError as error:
        words, _, place = str(error).partition(" (at ")
        raise ConfigError.of(
            "config.bad_toml",
            f"{words}.",
            "Fix the line; strings need quotes.",
            where=f"{FILE}, {place.rstrip(')')}" if place else FILE,
        ) from error
    except ValueError as error:  # of a number with thousands of digits
        raise ConfigError.of(
            "config.bad_toml",
            f"A value in {FILE} cannot be read: {in_one_line(error)}.",
            "Write a shorter number.",
            where=FILE,
        ) from error


def is_outside(config: ProjectConfig) -> bool:
    """Whether an external script makes the rollouts of this project."""
    return config.agent.source == "outside"


def refuse_outside(config: ProjectConfig) -> None:
    """Raise ConfigError if an external script makes the rollouts: there is no agent to run."""
    if is_outside(config):
        raise ConfigError.of(
            "agent.outside",
            "An external script makes the rollouts of this project, so nothing can be started "
            "here.",
            'Start the script; or write an agent and scenarios, and set agent.source to "project".',
            where="agent.source",
        )


# Scenarios


def scenario_file(project: Path, config: ProjectConfig, split: Split) -> Path | None:
    """Return the scenario file of a split; None if the settings name none. Raises ConfigError if it
    is outside of the project and the user has not allowed that."""
    name = config.scenarios.train if split == "train" else config.scenarios.validation
    return project_file(project, name, f"scenarios.{split}") if name else None


def read_scenarios(file: Path) -> tuple[list[Scenario], list[Problem]]:
    """Return the valid scenarios of a JSON Lines file, and one problem for each invalid line, or
    for a file that is missing, unreadable or empty."""
    try:
        raw = read_regular(file, MOST_SCENARIO_BYTES)
    except FileNotFoundError:
        return [], [
            _scenario_problem(
                file,
                0,
                "missing",
                "The file does not exist.",
                "Create the file, or set another one under [scenarios].",
            )
        ]
    except OSError as error:
        return [], [
            _scenario_problem(file, 0, "unreadable", f"The file cannot be read: {error.strerror}.")
        ]
    except ValueError as error:
        return [], [_scenario_problem(file, 0, "unreadable", f"The file cannot be read: {error}.")]
    scenarios: list[Scenario] = []
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(raw.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            scenario = parse_scenario(parse_json(text), number)
        except UnicodeDecodeError:
            problems.append(
                _scenario_problem(
                    file, number, "not_utf8", "The line is not UTF-8.", "Save the file as UTF-8."
                )
            )
            continue
        except ValueError as error:
            problems.append(
                _scenario_problem(
                    file,
                    number,
                    "bad_json",
                    f"The line is not a JSON object: {error}.",
                    "Write one object per line, with double quotes.",
                )
            )
            continue
        if first := seen.get(scenario.id):
            problems.append(
                _scenario_problem(
                    file,
                    number,
                    "duplicate",
                    f"The id {scenario.id} is already used on line {first}.",
                    "Give every scenario its own id, or omit the ids.",
                )
            )
            continue
        seen[scenario.id] = number
        scenarios.append(scenario)
    if not scenarios and not problems:
        problems.append(
            _scenario_problem(
                file,
                0,
                "empty",
                "The file has no scenario.",
                'Add at least one line, e.g. {"question": "…"}.',
            )
        )
    return scenarios, problems


def load_scenarios(project: Path, config: ProjectConfig, split: Split) -> list[Scenario]:
    """Return all scenarios of a split; empty if the settings name no file for it. Raises
    ConfigError with the first problem of the file."""
    file = scenario_file(project, config, split)
    if file is None:
        return []
    scenarios, problems = read_scenarios(file)
    if problems:
        raise ConfigError(problems[0])
    return scenarios


def parse_scenario(data: Any, number: int) -> Scenario:
    """Convert a JSON object into a scenario; `number`, its line number, is the id of one without
    `id`. Raises ValueError if `data` is not an object."""
    if not isinstance(data, dict):
        raise ValueError(f"it is a {type(data).__name__}")
    name = replace_surrogates(str(data.get("id", number)))
    texts = [data[key] for key in (*TITLE_KEYS, *data) if isinstance(data.get(key), str)]
    words = next((text for text in texts if text != name), name)
    title = replace_surrogates(" ".join(words.split()))
    return Scenario(id=name, title=title[:80] + ("…" if len(title) > 80 else ""), data=data)


def write_scenarios(file: Path, items: list[dict[str, Any]]) -> None:
    """Replace a scenario file (JSON Lines). Raises ValueError for an item that is no dict."""
    for number, item in enumerate(items, 1):
        parse_scenario(item, number)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items))


def append_scenarios(file: Path, items: list[dict[str, Any]]) -> None:
    """Add lines to a scenario file, which is created if it is missing; its lines stay as they are.
    Raises ConfigError if it would become too large."""
    if not items:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    before = read_regular(file, MOST_SCENARIO_BYTES) if file.exists() else b""
    before += b"\n" if before and not before.endswith(b"\n") else b""
    lines = "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items)
    content = before + lines.encode()
    if len(content) > MOST_SCENARIO_BYTES:
        raise ConfigError.of(
            "scenarios.too_large",
            f"The file would be larger than {MOST_SCENARIO_BYTES >> 30} GB.",
            "Import fewer conversations, or remove scenarios first.",
            where=str(file),
        )
    replace_file(file, content)


def split_info(project: Path, config: ProjectConfig, split: Split) -> SplitInfo | None:
    file = scenario_file(project, config, split)
    if file is None:
        return None
    scenarios, problems = read_scenarios(file)
    path = os.path.relpath(file, project.resolve())
    return SplitInfo(split=split, path=path, count=len(scenarios), problems=problems)


def _scenario_problem(file: Path, line: int, code: str, message: str, hint: str = "") -> Problem:
    where = f"{file.name}, line {line}" if line else file.name
    return Problem(
        code=f"scenarios.{code}", message=message, hint=hint, where=where, detail=str(file)
    )
