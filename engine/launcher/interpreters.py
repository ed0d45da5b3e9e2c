"""Python interpreters for starting an engine, in the order in which they are tried."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from pydantic import ValidationError

from engine.launcher.engine_root import checkout, make_engine_root
from engine.protocol.problems import LaunchError
from engine.protocol.records.machine.environments import BUILT_IN, ChosenEngine, EngineChoice
from engine.protocol.requests.clusters import KEY_VARIABLE
from engine.runtime.files import replace_file
from engine.runtime.paths import ROOT


def choice_file() -> Path:
    return Path(platformdirs.user_data_dir("atelier")) / "engine.json"


def read_choice() -> EngineChoice:
    """Read which engine is selected, and the previous one; the built-in engine if none was ever
    selected. Raises LaunchError for an invalid file."""
    file = choice_file()
    try:
        return EngineChoice.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return EngineChoice()
    except (OSError, ValidationError) as error:
        raise LaunchError.of(
            "launch.choice_unreadable",
            "The setting for the selected engine cannot be read.",
            "Choose the engine again in Settings, or with `atelier environments use`.",
            where=str(file),
            detail=str(error),
        ) from error


def choose(engine: ChosenEngine) -> EngineChoice:
    """Select the engine for the next start; the current choice becomes the previous one, unless
    they are equal."""
    try:
        before = read_choice()
    except LaunchError:
        before = EngineChoice()
    if engine == before.current:
        return before
    return write_choice(EngineChoice(current=engine, previous=before.current))


def write_choice(choice: EngineChoice) -> EngineChoice:
    """Store the choice durably. Raises OSError."""
    file = choice_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, choice.model_dump_json(indent=1) + "\n")
    return choice


MARK = "ready"
"""File in the folder of a complete environment; says whether it has an engine."""
TRYING_S = 120.0
TITLES = {BUILT_IN: "built-in engine", "engine-gpu": "GPU engine"}


@dataclass(frozen=True)
class Interpreter:
    """Interpreter, and the folder to start the engine in."""

    name: str
    python: str
    folder: Path
    apart: bool = False
    """Whether the environment is separate: the checkout must not be importable there."""

    @property
    def title(self) -> str:
        return title_of(self.name)

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables for the engine process."""
        kept = dict(os.environ)
        kept.pop(KEY_VARIABLE, None)  # commands and the studio send it to the engine
        if self.apart:
            kept.pop("PYTHONPATH", None)
        return kept


def title_of(name: str) -> str:
    return TITLES.get(name, f"engine of {name}")


def chosen_interpreters() -> tuple[list[Interpreter], list[str]]:
    """Interpreters of the current, previous and built-in engine without duplicates, and messages:
    one if the current engine is missing."""
    notices: list[str] = []
    interpreters: list[Interpreter] = []
    try:
        choice = read_choice()
    except LaunchError as error:
        return [own_interpreter()], [f"{error.problem.message} {error.problem.hint}"]
    for one in (choice.current, choice.previous or ChosenEngine(), ChosenEngine()):
        if one.built_in:
            interpreters.append(own_interpreter())
        elif chosen := _of_choice(one):
            interpreters.append(chosen)
        elif one == choice.current:
            notices.append(f"The {title_of(one.name)} in {one.home} is missing or incomplete.")
    return list(dict.fromkeys(interpreters)), notices


def _of_choice(one: ChosenEngine) -> Interpreter | None:
    """Interpreter of a chosen engine; None if it was removed or is incomplete."""
    if not Path(one.python).exists() or engine_home(Path(one.python)) is None:
        return None
    try:
        return given_interpreter(one.python, one.name)
    except OSError:  # no place to stand in
        return None


def own_interpreter() -> Interpreter:
    return given_interpreter(sys.executable, BUILT_IN)


def given_interpreter(python: str, name: str = "") -> Interpreter:
    """Interpreter at the path `python`, called `name` in messages (empty: by its environment or
    path). That of an environment gets its own root folder."""
    home = engine_home(Path(python))
    if home is not None:
        known = json.loads((home / MARK).read_text())["name"]
        return Interpreter(name or known, python, make_engine_root(home, checkout()), apart=True)
    return Interpreter(name or python, python, ROOT)


def engine_home(python: Path) -> Path | None:
    """Environment folder of an interpreter; None unless the environment is completely installed and
    contains an engine."""
    home = python.absolute().parent.parent
    try:
        return home if json.loads((home / MARK).read_text()).get("engine") else None
    except (OSError, ValueError, AttributeError):
        return None


def running_engine() -> ChosenEngine:
    """Engine in whose environment this process runs; the built-in one if in none."""
    home = engine_home(Path(sys.executable))
    if home is None:
        return ChosenEngine()
    name = json.loads((home / MARK).read_text())["name"]
    return ChosenEngine(name=name, home=str(home), python=sys.executable)


def why_broken(one: Interpreter) -> str:
    """Error message of an interpreter that cannot import the engine; empty if it can."""
    try:
        done = subprocess.run(
            [one.python, "-c", "import engine.server.serve"],
            capture_output=True,
            text=True,
            errors="replace",
            cwd=one.folder,
            env=one.variables,
            timeout=TRYING_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = done.stderr.strip().splitlines()
    return (lines[-1] if lines else f"exit {done.returncode}") if done.returncode else ""
