"""`new FOLDER --verifiers NAME` and `new FOLDER --inspect TASK`: create the project of an
environment of verifiers, or of a task of Inspect.

The packages are installed on request; the same command then reads the data set.
"""

import argparse
from contextlib import aclosing
from pathlib import Path

from engine.cli.terminal import Progress, say, say_json
from engine.environments.agent_packages import packages_name
from engine.environments.bootstrap import status_of
from engine.environments.job import carry_out
from engine.integrations.inspect.creation import begin_task, load_task_data
from engine.integrations.packaged_tasks.data_set import load_data
from engine.integrations.packaged_tasks.project import parse_arguments
from engine.integrations.verifiers.creation import begin_environment
from engine.protocol.requests.drafts import EnvironmentData
from engine.storage.project import load_config


async def create_from_environment(folder: Path, arguments: argparse.Namespace) -> int:
    """Create or continue the project in `folder`; returns the exit code."""
    values = parse_arguments(arguments.arguments)
    if arguments.inspect:
        begin_task(folder, arguments.inspect, values)
    else:
        begin_environment(folder, arguments.verifiers, values)
    name = packages_name(folder, load_config(folder).agent)
    if status_of(name).state != "ready":
        if not arguments.install:
            say(f"Created {folder}. Read requirements.txt, then install the packages:")
            say(f"  atelier environments install {arguments.folder}")
            say("Then run the same command again: it reads the data set.")
            return 0
        await _install(name, arguments.json)
    load = load_task_data if arguments.inspect else load_data
    found = await load(folder, arguments.scenarios)
    _print(folder, found, arguments)
    return 0


async def _install(name: str, as_json: bool) -> None:
    progress = Progress()
    try:
        async with aclosing(carry_out(name, "install")) as ticks:
            async for tick in ticks:
                if as_json:
                    say_json(tick)
                else:
                    progress.show(f"{tick.share:4.0%}  {tick.stage}  {tick.words}")
    finally:
        progress.clear()


def _print(folder: Path, found: EnvironmentData, arguments: argparse.Namespace) -> None:
    if arguments.json:
        say_json(found)
        return
    say(f"{found.train} training scenarios, {found.validation} for validation.")
    for note in found.notes:
        say(note)
    say(f"Created {folder}. Train the project: atelier train {arguments.folder}")
