"""Calls of packaging/bootstrap.py: a child process with JSON lines that ends with the engine."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from engine.protocol.problems import AtelierError, Problem, Refused
from engine.protocol.records.environments import EnvironmentState
from engine.runtime.paths import ROOT
from engine.runtime.variables import without_secrets

OF_AGENT = "agent:"
"""Begins the name of an environment that is made of a requirements file, whose path follows."""
KEPT = "agent-"
"""Begins the name that such an environment has in the cache; its key follows."""
BOOTSTRAP = ROOT / "packaging" / "bootstrap.py"


class EnvironmentMissing(AtelierError):
    """Environment that is not installed and could not be."""


class Status(BaseModel):
    """Status of one environment as bootstrap.py reports it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    state: EnvironmentState
    home: str
    python: str
    wrong: list[str]
    arrived: int
    packages: int
    bytes: int
    download_bytes: int
    engine: bool
    homes: list[str]
    """Every folder of it, also those that a newer one has replaced."""
    unfit: str
    busy: bool
    asked: str = ""
    """Requirements file that an agent's packages were installed for, by their key."""
    wanted: bool = True
    """Whether that file still asks for just these."""


def python_of(name: str) -> Path:
    """The Python of an environment; installed on the first call, into the user's cache."""
    done = run_bootstrap(command(name, "install"))
    said = answers(done.stdout)
    if not said or "python" not in said[-1]:
        told = problem_of(said[-1] if said else {}, done.stderr, name)
        raise EnvironmentMissing(told)
    return Path(said[-1]["python"])


def statuses() -> list[Status]:
    """Status of all environments by name, then of agent packages by key. Raises EnvironmentMissing
    without a checkout."""
    done = run_bootstrap(command("all", "status"))
    if done.returncode:
        said = answers(done.stdout)
        raise EnvironmentMissing(problem_of(said[-1] if said else {}, done.stderr, "all"))
    return [Status.model_validate(values) for values in answers(done.stdout)]


def status_of(name: str) -> Status:
    """Raises Refused where there is no such environment, EnvironmentMissing where its file cannot
    be read."""
    if not name.startswith(OF_AGENT):
        for status in statuses():
            if status.name == name:
                return status
        raise Refused.of("environment.unknown", f"There is no environment {name}.")
    done = run_bootstrap(command(name, "status"))
    said = answers(done.stdout)
    if done.returncode:
        raise EnvironmentMissing(problem_of(said[-1] if said else {}, done.stderr, "agent"))
    return Status.model_validate(said[-1]).model_copy(update={"name": name})


def installed_python(name: str) -> Path | None:
    """The Python of an environment that is there whole; nothing is installed for it. Raises
    EnvironmentMissing without a checkout, Refused where there is no such environment."""
    status = status_of(name)
    return Path(status.python) if status.state == "ready" else None


def run_bootstrap(arguments: list[str]) -> "subprocess.CompletedProcess[str]":
    """To its end, and not beyond ours. A run that ends here takes along every process that it does
    not know: then once more, from what has arrived."""
    for _ in range(3):
        with life() as descriptor:
            done = subprocess.run(
                [*arguments, "--life", str(descriptor)],
                capture_output=True,
                text=True,
                pass_fds=[descriptor],
                start_new_session=True,
                env=without_secrets(),
            )
        if done.returncode != -signal.SIGKILL:
            break
    return done


def command(name: str, action: str) -> list[str]:
    """Raises EnvironmentMissing where there is no bootstrap.py."""
    if name.startswith(OF_AGENT):
        return [*bootstrap("environment", "agent", action), "--file", name.removeprefix(OF_AGENT)]
    return bootstrap("environment", name, action)


def bootstrap(*arguments: str) -> list[str]:
    """Raises EnvironmentMissing where there is none."""
    name = arguments[1]
    if not BOOTSTRAP.exists():
        raise EnvironmentMissing.of(
            "environment.no_source",
            f"The {name} environment is installed from a source checkout: packaging/bootstrap.py "
            "is not here.",
            "Clone the repository and run the command there.",
        )
    return [sys.executable, str(BOOTSTRAP), *arguments, "--json"]


@contextlib.contextmanager
def life() -> Iterator[int]:
    """Read end of a life pipe: its holder ends when this process ends."""
    read, write = os.pipe()
    try:
        yield read
    finally:
        os.close(write)
        os.close(read)


def answers(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def problem_of(answer: dict[str, Any], said: str, name: str) -> Problem:
    """Problem that bootstrap.py reported, or the end of its output where it crashed."""
    if told := answer.get("problem"):
        return Problem.model_validate(told)
    return Problem(
        code="environment.not_installed",
        message=f"The {name} environment could not be installed.",
        hint="Try again: it resumes where it stopped.",
        detail=said[-4000:],
    )
