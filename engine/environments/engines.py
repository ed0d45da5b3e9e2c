"""Selection of the engine to start next, and clean-up of replaced environment folders."""

from pathlib import Path

import psutil

from engine.environments.bootstrap import EnvironmentMissing, command, run_bootstrap, status_of
from engine.launcher.interpreters import choose, engine_home, read_choice, title_of, write_choice
from engine.protocol.problems import LaunchError, Refused
from engine.protocol.records.machine.environments import (
    BUILT_IN,
    ChosenEngine,
    EngineChoice,
    UseEngine,
)


def use_engine(wanted: UseEngine) -> EngineChoice:
    """Select the engine that is started next. Raises Refused if it is not completely installed.
    Selecting the current engine again changes nothing; the previous one stays available."""
    if wanted.name == BUILT_IN:
        return choose(ChosenEngine())
    return choose(_whole(wanted))


def roll_back() -> EngineChoice:
    """Exchange the current engine with the previous one. Raises Refused without one."""
    previous = read_choice().previous
    if previous is None:
        raise Refused.of("engine.no_previous", "No engine was in use before this one.")
    return use_engine(UseEngine(name=previous.name, home=previous.home))


def _whole(wanted: UseEngine) -> ChosenEngine:
    title = title_of(wanted.name)
    status = status_of(wanted.name)
    if not status.engine:
        raise Refused.of("engine.none", f"The Python environment {wanted.name} contains no engine.")
    home = wanted.home or status.home
    python = Path(home) / "bin" / "python"
    if home not in status.homes or not python.exists() or engine_home(python) is None:
        raise Refused.of("engine.missing", f"The {title} is not installed.", "Install it first.")
    if home == status.home and status.state == "broken":
        raise Refused.of(
            "engine.broken", f"The {title} is damaged: {status.wrong[0]}", "Repair it first."
        )
    return ChosenEngine(name=wanted.name, home=home, python=str(python))


def refuse_removal(name: str) -> None:
    """Raise Refused if an environment is the selected engine or used by a process."""
    status = status_of(name)
    homes = {Path(home).resolve() for home in status.homes}
    try:
        current = read_choice().current
    except LaunchError:
        current = ChosenEngine()
    if not current.built_in and Path(current.home).resolve() in homes:
        raise Refused.of(
            "environment.in_use",
            f"The {title_of(name)} is the current engine.",
            "Switch to another engine first.",
        )
    if working := processes_in(homes):
        raise Refused.of(
            "environment.in_use",
            f"Process {working[0].pid} is running in the {name} environment.",
            "Wait until the process exits, or end it.",
        )


def forget(name: str) -> None:
    """If environment `name` is the engine to roll back to, remove it from the stored choice."""
    try:
        choice = read_choice()
    except LaunchError:
        return
    if choice.previous and choice.previous.name == name:
        write_choice(choice.model_copy(update={"previous": None}))


def follow_repair(name: str) -> None:
    """Select the new folder of an environment after its repair, if it is the selected engine."""
    status = status_of(name)
    choice = read_choice()
    if not status.engine or choice.current.name != name or choice.current.home == status.home:
        return
    repaired = ChosenEngine(name=name, home=status.home, python=status.python)
    write_choice(choice.model_copy(update={"current": repaired}))


def sweep(name: str) -> None:
    """Delete folders of environment `name` that a repair or update replaced, except the selected
    one, the one to roll back to, and those used by a process. Raises EnvironmentMissing on
    failure."""
    status = status_of(name)
    try:
        choice = read_choice()
    except LaunchError:
        return  # nobody can tell what is needed
    needed = {one.home for one in (choice.current, choice.previous) if one and one.home}
    needed |= {home for home in status.homes if processes_in({Path(home).resolve()})}
    options = [argument for home in sorted(needed) for argument in ("--spare", home)]
    done = run_bootstrap([*command(name, "sweep"), *options])
    if done.returncode:
        raise EnvironmentMissing.of(
            "environment.not_swept",
            f"The previous {name} environment could not be deleted.",
            "The leftover folder is unused; it only takes up disk space.",
            detail=done.stderr[-4000:],
        )


def processes_in(homes: set[Path]) -> list[psutil.Process]:
    """Return processes that run a Python of the environments in these folders."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or [""]
        if words[0].startswith("/") and not homes.isdisjoint(_above(words[0])):
            found.append(process)
    return found


def _above(program: str) -> set[Path]:
    folder = Path(program).parent  # unresolved: it is a link to the Python that it was made from
    return {folder.parent.resolve()}
