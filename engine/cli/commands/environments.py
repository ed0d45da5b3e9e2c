"""`environments list|install|verify|repair|remove NAME`, `environments use NAME|rollback`.

Works without an engine, so that it can repair one. Exit 1: the action was refused or failed, or a
verified environment is damaged.
"""

import argparse
import asyncio
from contextlib import aclosing
from pathlib import Path

from engine.cli.terminal import Progress, complain, say, say_json, table
from engine.environments.agent_packages import TITLE, packages_name
from engine.environments.bootstrap import KEPT, OF_AGENT, status_of
from engine.environments.catalogue import environments
from engine.environments.engines import roll_back, use_engine
from engine.environments.job import carry_out
from engine.hardware.doctor import card_lacks
from engine.hardware.gpus import read_gpus
from engine.launcher.interpreters import title_of
from engine.protocol.problems import Refused
from engine.protocol.records.machine.environments import (
    AgentPackages,
    EngineChoice,
    EnvironmentAction,
    EnvironmentList,
    EnvironmentView,
    UseEngine,
)
from engine.storage.project import FILE, load_config
from engine.trust.projects import require_trust

BAR = 24


def run(arguments: argparse.Namespace) -> int:
    try:
        return ACTIONS[arguments.action](arguments)
    except KeyboardInterrupt:
        say("Stopped. Run the same command to resume.")
        return 1


def _list(arguments: argparse.Namespace) -> int:
    found = environments(card_lacks(read_gpus()))
    if arguments.json:
        say_json(found)
        return 0
    rows = [
        (one.name, one.title, f"{one.bytes / 1e9:.1f} GB", _state(one, found))
        for one in found.environments
    ]
    rows += [(one.name, TITLE, _amount(one.bytes), _whose(one)) for one in found.agents]
    say(table(("name", "", "size", "state"), rows))
    say(f"\nSelected engine: the {title_of(found.choice.current.name)}.")
    if found.choice.previous:
        say(f"Previous engine: the {title_of(found.choice.previous.name)}.")
    for words in (one.lacks for one in found.environments if one.lacks and one.state == "ready"):
        say(words)
    if found.problem:
        complain(found.problem)
    return 0


def _state(one: EnvironmentView, found: EnvironmentList) -> str:
    if one.unfit and one.state == "absent":
        return one.unfit
    if one.elsewhere:
        return "being installed by another program"
    if one.state == "partial":
        return f"incomplete: {one.arrived} of {one.packages} packages downloaded"
    if one.state == "broken":
        return f"damaged: {one.wrong[0]}"
    in_use = one.home and one.home == found.choice.current.home
    return "in use" if in_use else {"ready": one.home, "absent": "not installed"}[one.state]


def _whose(one: AgentPackages) -> str:
    """State of an agent's environment: the requirements file it serves, or why it is unused."""
    if not one.requirements:
        return "unused: its installation was interrupted"
    if not one.wanted:
        return f"unused: {one.requirements} is missing, or now lists other packages"
    return f"for {one.requirements}"


def _amount(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _carry_out(arguments: argparse.Namespace) -> int:
    arguments.name = _named(arguments.name, arguments.action)
    status = status_of(arguments.name)
    asyncio.run(_work(arguments.name, arguments.action, arguments.json))
    if arguments.action == "install" and arguments.use:
        return _use(arguments)
    if status.name.startswith(KEPT):  # nothing is left that could say how it is
        status = status.model_copy(update={"state": "absent", "home": "", "homes": []})
    else:
        status = status_of(arguments.name)
    if arguments.json:
        say_json(status)
    else:
        what = "agent" if status.name.startswith(OF_AGENT) else status.name
        say(f"{what}: {WHOLE.get(arguments.action, 'not installed')} {status.home}")
    return 0


def _named(name: str, action: EnvironmentAction) -> str:
    """Name of an environment: `name` itself or, if `name` is a project folder, the environment of
    its agent's packages. Raises Refused if the agent needs none or the project is untrusted."""
    folder = Path(name).expanduser()
    if not (folder / FILE).is_file():
        return name
    if action != "remove":  # everything else runs code of packages
        require_trust(folder.resolve())
    agent = load_config(folder.resolve()).agent
    if agent.requirements is None:
        raise Refused.of("agent.no_requirements", f"The agent of {name} needs no packages.")
    return packages_name(folder.resolve(), agent)


async def _work(name: str, action: EnvironmentAction, as_json: bool) -> None:
    progress = Progress()
    try:
        async with aclosing(carry_out(name, action)) as ticks:
            async for tick in ticks:
                if as_json:
                    say_json(tick)
                    continue
                bar = "█" * (done := round(tick.share * BAR)) + "░" * (BAR - done)
                place = f"{tick.done}/{tick.total}"
                progress.show(f"{bar} {tick.share:4.0%}  {tick.stage} {place}  {tick.words}")
    finally:
        progress.clear()


def _use(arguments: argparse.Namespace) -> int:
    return _print_choice(use_engine(UseEngine(name=arguments.name)), arguments.json)


def _roll_back(arguments: argparse.Namespace) -> int:
    return _print_choice(roll_back(), arguments.json)


def _print_choice(choice: EngineChoice, as_json: bool) -> int:
    if as_json:
        say_json(choice)
    else:
        place = "" if choice.current.built_in else f" in {choice.current.home}"
        say(f"The {title_of(choice.current.name)}{place} will be used from the next start.")
    return 0


WHOLE = {"install": "installed in", "verify": "complete, in", "repair": "complete, in"}
ACTIONS = {
    "list": _list,
    "install": _carry_out,
    "verify": _carry_out,
    "repair": _carry_out,
    "remove": _carry_out,
    "use": _use,
    "rollback": _roll_back,
}
