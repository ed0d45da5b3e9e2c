"""`hosts ACTION [NAME …]`: remote servers, and moves of runs and checkpoints. Questions of a server
(fingerprint of a key, passphrase, code) are asked on the terminal.

Exit 1: the action was refused or failed.
"""

import argparse
import asyncio
import getpass
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from engine.cli.engine_connection import engine_for
from engine.cli.terminal import Progress, say, say_json, table, write
from engine.client import EngineClient
from engine.protocol.problems import Refused
from engine.protocol.requests.remote import (
    ActOnHost,
    AddHost,
    Answer,
    HostReport,
    HostSpec,
    HostTick,
    HostView,
    Moved,
    Question,
    SendRun,
)

WAIT_S = 15.0
STATES = {
    "away": "not connected",
    "connecting": "connecting",
    "asking": "waiting for your answer",
    "installing": "installing",
    "starting": "starting its engine",
    "connected": "connected",
    "reconnecting": "reconnecting automatically",
    "stopped": "stopped",
}
MARKS = {"good": "✓", "warn": "!", "bad": "✗"}
NOTHING_YET = "host.not_installed"


def run(arguments: argparse.Namespace) -> int:
    try:
        return asyncio.run(_run(arguments))
    except KeyboardInterrupt:
        say("Stopped. Run the same command to resume.")
        return 1


async def _run(arguments: argparse.Namespace) -> int:
    async with engine_for(arguments.workspace) as client:
        if arguments.action == "list":
            return await _list(client, arguments)
        if arguments.action == "known":
            for alias in (await client.known_hosts()).known:
                say(alias)
            return 0
        if arguments.action == "add":
            return await _add(client, arguments)
        return await ACTIONS[arguments.action](client, arguments)


async def _list(client: EngineClient, arguments: argparse.Namespace) -> int:
    found = await client.hosts()
    if arguments.json:
        say_json(found)
        return 0
    if not found.hosts:
        say("No servers yet. Add one with `atelier hosts add NAME ADDRESS`.")
        return 0
    rows = [(one.spec.name, one.spec.address, _state(one)) for one in found.hosts]
    say(table(("name", "address", "state"), rows))
    return 0


def _state(one: HostView) -> str:
    words = STATES[one.state]
    return f"{words}: {one.problem.message}" if one.problem else words


async def _add(client: EngineClient, arguments: argparse.Namespace) -> int:
    offline = {"auto": None, "yes": True, "no": False}[arguments.offline]
    spec = HostSpec(
        name=arguments.name,
        address=arguments.address or arguments.name,
        transport=arguments.transport,
        folder=arguments.folder,
        engine=arguments.engine,
        offline=offline,
    )
    await client.add_host(AddHost(spec=spec))
    say(f"{spec.name} was added. Check the server: `atelier hosts check {spec.name}`.")
    return 0


async def _check(client: EngineClient, arguments: argparse.Namespace) -> int:
    """Show what the server has and what would be installed; changes nothing there."""
    view = await act(client, arguments.name, "connect", lambda one: one.report is not None)
    if arguments.json:
        say_json(view)
        return 0
    assert view.report is not None
    show_report(view.report)
    return int(any(check.state == "bad" for check in view.report.checks))


async def _install(client: EngineClient, arguments: argparse.Namespace) -> int:
    view = await act(client, arguments.name, "install", _connected)
    assert view.info is not None
    say(f"{view.spec.name} is ready: engine {view.info.version}, {view.info.device}.")
    return 0


async def _roll_back(client: EngineClient, arguments: argparse.Namespace) -> int:
    view = await act(client, arguments.name, "roll_back", _connected)
    assert view.info is not None
    say(f"{view.spec.name} now runs engine {view.info.version} ({view.info.build}).")
    return 0


async def _stop(client: EngineClient, arguments: argparse.Namespace) -> int:
    await act(client, arguments.name, "stop_engine", _ends_with("host.engine_stopped"))
    say(f"The engine on {arguments.name} was stopped.")
    return 0


async def _remove(client: EngineClient, arguments: argparse.Namespace) -> int:
    await act(client, arguments.name, "remove", lambda one: one.state == "away")
    say(f"Atelier was removed from {arguments.name}.")
    return 0


async def _let_go(client: EngineClient, arguments: argparse.Namespace) -> int:
    await client.act_on_host(arguments.name, ActOnHost(action=arguments.action))
    return 0


async def _move(client: EngineClient, arguments: argparse.Namespace) -> int:
    """Move a checkpoint or a whole run between machines; the same command resumes."""
    project = Path(arguments.project).expanduser().resolve()
    await connected(client, arguments.name)
    name, _, step = arguments.run.partition("@")
    runs = await client.runs(str(project))
    run = next((one for one in runs if name in (one.id, one.name)), None)
    if run is None:
        raise Refused.of("run.unknown", f"This project has no run {name}.")
    if arguments.action == "send":
        moving = client.send_run(run.id, SendRun(host=arguments.name))
    elif arguments.action == "bring-home":
        moving = client.bring_home(run.id)
    elif step.isdecimal():
        moving = client.fetch_checkpoint(run.id, int(step))
    else:
        raise Refused.of("run.no_step", "No checkpoint step was given.", f"Write {run.name}@20.")
    progress = Progress()
    async with aclosing(moving) as ticks:
        async for one in ticks:
            if isinstance(one, Moved):
                progress.clear()
                say(f"Transferred and verified: {one.path}")
            else:
                progress.show(f"{one.done / 1e6:.1f} of {one.total / 1e6:.1f} MB")
    return 0


ACTIONS = {
    "fetch": _move,
    "bring-home": _move,
    "send": _move,
    "check": _check,
    "install": _install,
    "rollback": _roll_back,
    "stop": _stop,
    "remove": _remove,
    "disconnect": _let_go,
    "forget": _let_go,
}


async def connected(client: EngineClient, name: str) -> None:
    """Connect to the named server and its engine. Raises Refused with the problem."""
    await act(client, name, "connect", _connected)


def show_report(report: HostReport) -> None:
    say(f"{report.server}: {report.cores} cores, {report.memory_bytes / 2**30:.0f} GiB memory")
    for check in report.checks:
        say(f"  {MARKS[check.state]} {check.name}: {check.words}")
        if check.hint:
            say(f"    {check.hint}")
    if any(one.current for one in report.engines):
        say(f"  Installed in {report.folder}: {', '.join(one.id for one in report.engines)}.")
        return
    brought, kept = report.download_bytes / 1e9, report.installed_bytes / 1e9
    say(f"  Would be installed in {report.folder}: {report.engine}, {brought:.1f} GB to transfer,")
    say(f"  {kept:.1f} GB on its disk. Install with `atelier hosts install NAME`.")


async def act(
    client: EngineClient, name: str, action: str, done: Callable[[HostView], bool]
) -> HostView:
    """Request an action on a remote server and wait, without time limit, until `done` accepts its
    state and no job is active; the user answers login prompts. Raises Refused if the connection
    stops with a problem."""
    listed = await client.act_on_host(name, ActOnHost.model_validate({"action": action}))
    progress, started_at = Progress(), time.monotonic()
    while True:
        view = next(one for one in listed.hosts if one.spec.name == name)
        if view.questions:
            progress.clear()
            await _answer(client, view)
        elif done(view) and not view.job:
            progress.clear()
            return view
        elif view.state == "stopped" and view.problem:
            progress.clear()
            raise Refused(view.problem)
        elif view.tick:
            progress.show(_tick_words(view.tick))
        else:
            progress.show(f"{name}: {_state(view)} · {time.monotonic() - started_at:.0f} s")
        listed = await client.hosts(listed.revision, WAIT_S)


async def _answer(client: EngineClient, view: HostView) -> None:
    for question in view.questions:
        value = await asyncio.to_thread(_ask, question)
        await client.answer_host(view.spec.name, Answer(question=question.id, value=value))


def _ask(question: Question) -> str | None:
    """Ask on the terminal, or read the answer from a pipe."""
    way = f" (reached through {question.via})" if question.via else ""
    say(f"{question.host}{way}: {question.prompt}")
    if question.detail:
        say(f"  {question.detail}")
    hidden = not question.echo and question.kind != "host_key"
    try:
        if sys.stdin.isatty() and hidden:
            return getpass.getpass("> ")
        write("yes or no > " if question.kind == "host_key" else "> ")
        return sys.stdin.readline().rstrip("\n") or None
    except EOFError:
        return None


def _tick_words(tick: HostTick) -> str:
    words = f"{tick.stage}: {tick.words}"
    if tick.total > 10_000:
        return f"{words} · {tick.done / 1e6:.0f} of {tick.total / 1e6:.0f} MB"
    return f"{words} · {tick.done} of {tick.total}" if tick.total else words


def _connected(view: HostView) -> bool:
    return view.state == "connected"


def _ends_with(code: str) -> Callable[[HostView], bool]:
    return lambda view: view.problem is not None and view.problem.code == code
