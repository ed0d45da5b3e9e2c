"""Choice of the engine to start: a small file of the user, replaced atomically."""

from pathlib import Path

import platformdirs
from pydantic import ValidationError

from engine.protocol.problems import LaunchError
from engine.protocol.records.environments import ChosenEngine, EngineChoice
from engine.runtime.files import replace_file


def choice_file() -> Path:
    return Path(platformdirs.user_data_dir("atelier")) / "engine.json"


def read_choice() -> EngineChoice:
    """The built-in engine where nobody has chosen. Raises LaunchError where the file says nothing
    that can be understood."""
    file = choice_file()
    try:
        return EngineChoice.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return EngineChoice()
    except (OSError, ValidationError) as error:
        raise LaunchError.of(
            "launch.choice_unreadable",
            "Which engine was chosen cannot be read.",
            "Choose it again in Settings, or with `atelier environments use`.",
            where=str(file),
            detail=str(error),
        ) from error


def choose(engine: ChosenEngine) -> EngineChoice:
    """From now on this one is started; the one of before is kept as the previous one. Choosing the
    current one again changes nothing."""
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
