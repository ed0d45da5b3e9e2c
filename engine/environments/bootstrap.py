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
from engine.protocol.records.machine.environments import EnvironmentState
from engine.runtime.paths import ROOT
from engine.runtime.variables import without_secrets

OF_AGENT = "agent:"
"""Prefix of the names of agent environments, before the path of the requirements file."""
KEPT = "agent-"
"""Prefix of agent environments in the cache, before a hash of the requirements."""
BOOTSTRAP = ROOT / "packaging" / "bootstrap.py"


class EnvironmentMissing(AtelierError):
    """An environment is not installed and cannot be installed."""


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
    """All its folders, including those replaced by newer ones."""
    unfit: str
    busy: bool
    requirements: str = ""
    """Requirements file that an agent environment was installed for."""
    wanted: bool = True
    """Whether the requirements file is unchanged since the installation."""


def python_of(name: str) -> Path:
    """Python executable of an environment; the first call installs it into the user's cache."""
    done = run_bootstrap(command(name, "install"))
    replies = answers(done.stdout)
    if not replies or "python" not in replies[-1]:
        problem = problem_of(replies[-1] if replies else {}, done.stderr, name)
        raise EnvironmentMissing(problem)
    return Path(replies[-1]["python"])


def statuses() -> list[Status]:
    """Status of all environments in order of their names, then of the environments for agents'
    packages in the cache. Raises EnvironmentMissing unless Atelier runs from a source checkout."""
    done = run_bootstrap(command("all", "status"))
    if done.returncode:
        replies = answers(done.stdout)
        raise EnvironmentMissing(problem_of(replies[-1] if replies else {}, done.stderr, "all"))
    return [Status.model_validate(values) for values in answers(done.stdout)]


def status_of(name: str) -> Status:
    """Return the status of an environment. Raises Refused if it is unknown, EnvironmentMissing if
    its requirements file cannot be read."""
    if not name.startswith(OF_AGENT):
        for status in statuses():
            if status.name == name:
                return status
        raise Refused.of("environment.unknown", f"There is no environment {name}.")
    done = run_bootstrap(command(name, "status"))
    replies = answers(done.stdout)
    if done.returncode:
        raise EnvironmentMissing(problem_of(replies[-1] if replies else {}, done.stderr, "agent"))
    return Status.model_validate(replies[-1]).model_copy(update={"name": name})


def installed_python(name: str) -> Path | None:
    """Return the Python executable of an environment, or None if it is not installed. Raises
    Refused for an unknown name, EnvironmentMissing if Atelier does not run from a git checkout."""
    status = status_of(name)
    return Path(status.python) if status.state == "ready" else None


def run_bootstrap(arguments: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run a command line of bootstrap.py and return its result; it is stopped if this process ends.
    Tried up to three times if killed, since the end of a run kills child processes that it does not
    know; downloads are kept."""
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
    """Return the command line of bootstrap.py for an action (such as `status`) on environment
    `name`. Raises EnvironmentMissing if bootstrap.py is missing."""
    if name.startswith(OF_AGENT):
        return [*bootstrap("environment", "agent", action), "--file", name.removeprefix(OF_AGENT)]
    return bootstrap("environment", name, action)


def bootstrap(*arguments: str) -> list[str]:
    """Return the command line of bootstrap.py with these arguments, the second of which names the
    environment. Raises EnvironmentMissing if bootstrap.py is missing."""
    name = arguments[1]
    if not BOOTSTRAP.exists():
        raise EnvironmentMissing.of(
            "environment.no_source",
            f"The {name} environment needs a source checkout: packaging/bootstrap.py is missing.",
            "Clone the Atelier repository and run the command in the clone.",
        )
    return [sys.executable, str(BOOTSTRAP), *arguments, "--json"]


@contextlib.contextmanager
def life() -> Iterator[int]:
    """Yield the read end of a pipe for a child process to inherit. When this process ends, the
    child reads end of file and exits."""
    read, write = os.pipe()
    try:
        yield read
    finally:
        os.close(write)
        os.close(read)


def answers(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def problem_of(answer: dict[str, Any], stderr: str, name: str) -> Problem:
    """Return the problem in bootstrap.py's `answer`, or else one with the end of its stderr. `name`
    is the environment."""
    if problem := answer.get("problem"):
        return Problem.model_validate(problem)
    return Problem(
        code="environment.not_installed",
        message=f"The {name} environment could not be installed.",
        hint="Try again; the installation resumes where it stopped.",
        detail=stderr[-4000:],
    )
