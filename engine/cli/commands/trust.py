"""`trust PROJECT`: allow its code to run and its data to be sent; also the confirmation before
commands that run a project, or send to an address that it names.

On a terminal the question is asked once; without one, use `--trust` and `--confirm-address`.
"""

import argparse
import sys
from pathlib import Path

from pydantic import TypeAdapter

from engine.cli.run_lookup import find_run_folder
from engine.cli.terminal import say, warn, write
from engine.protocol.config.agent import AgentConfig
from engine.protocol.problems import ConfigError, Problem, Refused
from engine.protocol.requests.trust import Confirmation
from engine.rollout.sandbox.machine import require_sandbox
from engine.storage.project import FILE, edit_text, load_config, read_toml, write_toml
from engine.trust.addresses import address_problems, confirm_address
from engine.trust.confirmation import confirm
from engine.trust.files import confirm_file, file_problems
from engine.trust.projects import is_trusted, project_of_run, trust_project

CONFIRMATIONS: TypeAdapter[Confirmation] = TypeAdapter(Confirmation)


def run(arguments: argparse.Namespace) -> int:
    """Store the confirmations given to `atelier trust`: addresses, and the project or files of it.
    Returns the exit code."""
    for pair in arguments.confirm_address:
        _confirm_pair(pair)
    if arguments.project:
        project = Path(arguments.project).expanduser().resolve()
        for name in arguments.confirm_file:
            confirm_file(project, project / Path(name).expanduser())
        if not arguments.confirm_file:
            if arguments.sandbox:
                require_sandbox(AgentConfig(sandbox="process"))
                if load_config(project).agent.sandbox == "none":
                    text = read_toml(project)
                    write_toml(project, edit_text(text, {"agent.sandbox": "process"}))
            trust_project(project)
            where = "in a sandbox" if arguments.sandbox else "with your rights"
            say(f"{project} is trusted: its agent may run {where}, its judges may be called.")
    elif arguments.confirm_file or not arguments.confirm_address:
        raise ConfigError.of("usage", "No project was given.", "Run `atelier trust PROJECT`.")
    return 0


def settle_trust(arguments: argparse.Namespace) -> None:
    """Store the confirmations among the options, before a command that runs code or sends data. In
    an interactive terminal, ask about missing ones. Raises Refused or ConfigError if the user
    declines."""
    for pair in arguments.confirm_address:
        _confirm_pair(pair)
    if folder := _folder(arguments):
        if arguments.trust:
            trust_project(folder)
        elif sys.stdin.isatty() and sys.stdout.isatty() and not getattr(arguments, "json", False):
            _ask_about(folder)


def _ask_about(folder: Path) -> None:
    if not is_trusted(folder):
        warn(f"{folder} was created elsewhere, or was never run here.")
        if not _agreed("Trust this project? Its agent, MCP servers and packages run as your user."):
            raise Refused.of("project.untrusted", "Nothing was run and nothing was sent.")
        trust_project(folder)
    for problem in _unconfirmed(folder):
        warn(problem.message)
        if not _agreed("Confirm it?"):
            raise ConfigError(problem)
        confirm(CONFIRMATIONS.validate_json(problem.detail))


def _unconfirmed(folder: Path) -> list[Problem]:
    try:
        config = load_config(folder)
    except ConfigError:  # the command says it
        return []
    found = file_problems(folder, config) + address_problems(config)
    return [one for one in found if one.code in ("address.unconfirmed", "file.outside")]


def _folder(arguments: argparse.Namespace) -> Path | None:
    """Project that a command names directly or by one of its runs."""
    for name, of_run in (("project", False), ("target", True), ("run", True), ("name", False)):
        value = getattr(arguments, name, None)
        if isinstance(value, str) and value:
            folder = Path(value).expanduser().resolve()
            if of_run and not folder.exists():
                folder = find_run_folder(value.rpartition("@")[0] or value)
            if folder.is_dir():
                return project_of_run(folder) if of_run else folder
    folder = Path(getattr(arguments, "folder", "")).expanduser().resolve()
    return folder if (folder / FILE).is_file() else None


def _agreed(question: str) -> bool:
    write(f"{question} [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _confirm_pair(pair: str) -> None:
    """Confirm a `PROVIDER=ADDRESS` pair. Raises ConfigError, Refused."""
    provider, equals, address = pair.partition("=")
    try:
        if not (provider and equals):
            raise ValueError("there is no provider before =")
        confirm_address(provider, address)
    except ValueError as error:
        raise ConfigError.of(
            "usage",
            f"--confirm-address {pair} cannot be used: {_words(error)}",
            "Write PROVIDER=ADDRESS, for example openai=https://models.example.com/v1.",
        ) from error


def _words(error: ValueError) -> str:
    """Message of an error without the text that pydantic adds."""
    last = next((line for line in str(error).splitlines() if "Value error" in line), str(error))
    return last.strip().removeprefix("Value error, ").partition(" [type=")[0] + "."
