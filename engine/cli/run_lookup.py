"""Names of runs and checkpoints on the command line: one resolver for every command.

A run is named by its folder, its name, its id, or the end of its id (4 characters or more). Names
are looked up in the project of the current folder, in projects directly below it, and in the
workspace. `RUN@STEP`, `RUN@best` and `RUN@newest` name a checkpoint.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from engine.launcher.local import default_workspace
from engine.protocol.problems import ConfigError
from engine.storage.checkpoints.references import find_in_run, matching
from engine.storage.project import FILE
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import read_spec, run_reader, specs_of


class RunAndStep(NamedTuple):
    """Run folder and checkpoint step; None is the newest complete checkpoint."""

    folder: Path
    step: int | None


def find_run_folder(text: str) -> Path:
    """Folder of the run that `text` names (folder, name or id), whatever its content. Raises
    ConfigError if it is unknown or ambiguous."""
    folder = Path(text).expanduser()
    if folder.is_dir():
        return folder.resolve()
    if "/" in text or text.startswith("."):
        raise ConfigError.of("run.missing", f"There is no run folder {text}.", where=text)
    projects = list(_projects())
    found = matching([run for project in projects for run in specs_of(project)], text)
    if len(found) == 1:
        return found[0][0].resolve()
    if found:
        places = ", ".join(f"{run.parents[1].name} ({spec.id[-8:]})" for run, spec in found[:8])
        raise ConfigError.of(
            "run.ambiguous",
            f"{len(found)} runs are called {text}: {places}.",
            "Pass the last characters of the run's id, or the run's folder.",
        )
    raise ConfigError.of(
        "run.unknown",
        f"No run {text} in the {len(projects)} projects of this folder and the workspace.",
        "List the runs of a project with `atelier runs PROJECT`, or pass the run's folder.",
    )


def find_run_and_step(text: str) -> RunAndStep:
    """Run and checkpoint that `text` names: `RUN`, `RUN@STEP`, `RUN@best` or `RUN@newest`. Raises
    ConfigError if there is none."""
    name, at, which = text.rpartition("@")
    if not at or Path(text).expanduser().is_dir():
        return RunAndStep(find_run_folder(text), None)
    folder = find_run_folder(name)
    return RunAndStep(folder, find_in_run(folder, read_spec(folder), which).step)


@contextmanager
def reading(text: str) -> Iterator[RunReader]:
    """Open the database of the run that `text` names for reading. Raises ConfigError for an unknown
    name, StoreError if the folder is not a run, or one of a newer version."""
    folder = find_run_folder(text)
    read_spec(folder)
    with run_reader(folder) as reader:
        yield reader


def _projects() -> Iterator[Path]:
    """Projects of the current folder and the workspace, without duplicates."""
    here = Path.cwd()
    seen: set[Path] = set()
    around = [*(place for place in (here, *here.parents) if (place / FILE).is_file())][:1]
    for folder in (here, default_workspace()):
        around += sorted(file.parent for file in folder.glob(f"*/{FILE}"))
    for project in around:
        if (place := project.resolve()) not in seen:
            seen.add(place)
            yield place
