"""`bootstrap.py environment` and `bootstrap.py wheels`: environments beside .venv, and wheels for
another machine, for people and for the engine.
"""

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import agents
import environments
import place
from another import SETS, Another, bring_wheels
from base import LOCKS, VENV, Failed, ensure_environment, ensure_packages, ensure_pip, say

AGENT = "agent"
"""The packages that the agent of a project asks for."""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    environment = commands.add_parser(
        "environment", help="install an environment of its own; the last line is its Python"
    )
    environment.add_argument("name", choices=[*sorted(place.KINDS), AGENT, *agents.names(), "all"])
    environment.add_argument(
        "--file", type=Path, help="with agent: the requirements file that it is made of"
    )
    environment.add_argument(
        "action",
        nargs="?",
        default="install",
        choices=["install", "verify", "repair", "remove", "sweep", "status"],
        help="sweep clears away what newer ones have replaced; all has only a status",
    )
    environment.add_argument(
        "--spare", type=Path, action="append", default=[], help="with sweep: this folder is needed"
    )
    environment.set_defaults(command=command_environment)
    wheels = commands.add_parser("wheels", help="bring the wheels of an engine for another machine")
    wheels.add_argument("set", choices=sorted(SETS))
    wheels.add_argument("--machine", default="x86_64", help="as `uname -m` says it there")
    wheels.add_argument("--libc", default="2.28", help="the version of its glibc")
    wheels.add_argument("--python", default="3.11")
    wheels.set_defaults(command=command_wheels)
    for command in (environment, wheels):
        command.add_argument("--json", action="store_true", help="progress as JSON lines")
        command.add_argument("--life", type=int, help="a pipe: at its end everything here ends")


def command_environment(arguments: argparse.Namespace) -> int:
    def work(tell: Teller) -> None:
        ensure_environment()
        if arguments.name == "all":
            tell_all(arguments.action, tell)
        else:
            act(place_of(arguments.name, arguments.file), arguments.action, arguments.spare, tell)

    return told(arguments, work)


def command_wheels(arguments: argparse.Namespace) -> int:
    """The last line names every file, with the package it is of and its hash."""

    def work(tell: Teller) -> None:
        there = Another(arguments.set, arguments.machine, arguments.libc, arguments.python)
        files = [
            {"name": one.name, "file": str(file), "sha256": place.sha256(file)}
            for one, file in bring_wheels(there, tell)
        ]
        tell.answer(
            {"name": arguments.set, "state": "in", "home": str(there.wheels), "files": files}
        )

    return told(arguments, work)


def told(arguments: argparse.Namespace, work: Callable[["Teller"], None]) -> int:
    """Do it, and say how it went; nothing of it outlives who asked."""
    if arguments.life is not None:
        threading.Thread(target=end_with, args=(arguments.life,), daemon=True).start()
    tell = Teller(arguments.json)
    try:
        work(tell)
    except place.Refusal as refusal:
        tell.refuse(refusal)
        return 1
    except Failed as failure:
        tell.refuse(place.Refusal("environment.not_installed", str(failure)))
        return 1
    return 0


def tell_all(action: str, tell: "Teller") -> None:
    if action != "status":
        raise place.Refusal("environment.unknown", "all has only a status.")
    for name in sorted(place.KINDS):
        tell.answer(environments.status(place_of(name)))
    for name in agents.names():
        tell.answer(agents.status(agents.KeptPlace(name, VENV)))


def act(here: place.Place, action: str, spared: list[Path], tell: "Teller") -> None:
    """Raises Refusal, or Failed where .venv itself could not be made."""
    if isinstance(here, agents.KeptPlace) and action not in ("status", "remove"):
        raise place.Refusal(
            "environment.only_removed",
            "Of what was installed for an agent, a key says too little to do more than remove it.",
            "Name the project.",
        )
    if action == "status":
        kept = isinstance(here, agents.KeptPlace)
        tell.answer(agents.status(here) if kept else environments.status(here))
    elif action in ("install", "repair"):
        ensure_pip()
        if here.kind.below and not here.home():
            ensure_packages([here.kind.below])
        work = environments.install if action == "install" else environments.repair
        home = work(here, tell)
        tell.done(home, place.python_of(home))
    elif action == "verify":
        if wrong := environments.verify(here, tell):
            raise place.Refusal(
                "environment.damaged",
                f"The {here.name} environment is damaged: {wrong[0]}",
                "Repair it: a new one is made beside it.",
                "\n".join(wrong),
            )
        home = here.home()
        assert home is not None
        tell.done(home, place.python_of(home))
    elif action == "remove":
        environments.remove(here, tell)
    else:
        environments.sweep(here, spared, tell)


def place_of(name: str, requirements: "Path | None" = None) -> place.Place:
    """Raises Refusal where an agent's requirements cannot be read."""
    if name.startswith(agents.BEGINS):
        return agents.KeptPlace(name, VENV)
    if name != AGENT:
        return place.Place(name, LOCKS, VENV)
    try:
        return place.AgentPlace(Path(requirements or ""), VENV)
    except (OSError, UnicodeDecodeError) as error:
        raise place.Refusal(
            "agent.requirements_unreadable",
            f"The agent's requirements cannot be read: {error}.",
            "Check agent.requirements.",
        ) from error


class Teller:
    """What happens, as words, or as one JSON object a line on what was stdout; then all that
    anybody else prints goes to stderr."""

    def __init__(self, as_json: bool) -> None:
        self._lines = os.fdopen(os.dup(1), "w") if as_json else None
        self._stage = ""
        if as_json:
            os.dup2(2, 1)

    def __call__(self, stage: str, done: int, total: int, words: str) -> None:
        if self._lines:
            self._write({"stage": stage, "done": done, "total": total, "words": words})
        elif stage != self._stage:
            self._stage = stage
            say(f"{stage.capitalize()}: {words if stage == 'waiting' else f'{total} in all'}")

    def done(self, home: Path, python: Path) -> None:
        if self._lines:
            self._write({"stage": "ready", "home": str(home), "python": str(python)})
        else:
            say(str(python))

    def answer(self, values: dict[str, object]) -> None:
        if self._lines:
            self._write(values)
        else:
            say(f"{values['name']}: {values['state']} {values['home']}".rstrip())

    def refuse(self, refusal: place.Refusal) -> None:
        names = ("code", "message", "hint", "detail")
        if self._lines:
            self._write({"problem": {name: getattr(refusal, name) for name in names}})
        else:
            print(f"\n{refusal.detail}\n{refusal}".lstrip(), file=sys.stderr)

    def _write(self, values: dict[str, object]) -> None:
        assert self._lines is not None
        self._lines.write(json.dumps(values) + "\n")
        self._lines.flush()


def end_with(descriptor: int) -> None:
    """At the end of the pipe, whoever asked is gone: pip and we go too."""
    os.read(descriptor, 1)
    os.killpg(0, signal.SIGKILL)
