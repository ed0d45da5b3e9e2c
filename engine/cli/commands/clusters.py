"""`clusters ACTION [NAME …]`: servers with Tinker's API that sample and train.

Exit 1: the action was refused or failed.
"""

import argparse
import asyncio
import getpass
import os
import sys
import time
from pathlib import Path
from typing import Any

from engine.cli.commands.hosts import connected
from engine.cli.engine_connection import engine_for
from engine.cli.terminal import Progress, complain, say, say_json, table
from engine.client import EngineClient
from engine.protocol.addresses import is_loopback
from engine.protocol.problems import ConfigError, Refused
from engine.protocol.requests.clusters import (
    KEY_VARIABLE,
    ClusterView,
    StartCluster,
    cluster_spec,
    launch_request,
    skyrl_settings,
)
from engine.storage.project import load_config

LOOK_S = 1.0
OPTIONS = ("adapters", "most_rank", "sequences", "micro_batch", "gpus")
"""Options of `serve` that are settings of the server."""
STARTING = ("installing", "starting", "restarting")
STATES = {
    "off": "off",
    "installing": "installing SkyRL",
    "starting": "starting",
    "running": "running",
    "restarting": "starting again",
    "failed": "failed",
}


def run(arguments: argparse.Namespace) -> int:
    try:
        return asyncio.run(_run(arguments))
    except KeyboardInterrupt:
        say("Stopped.")
        return 130


async def _run(arguments: argparse.Namespace) -> int:
    async with engine_for(arguments.workspace) as client:
        return await ACTIONS[arguments.action](client, arguments)


async def _list(client: EngineClient, arguments: argparse.Namespace) -> int:
    found = await client.clusters()
    if arguments.json:
        say_json(found)
        return 0
    if not found.clusters:
        say("No clusters yet. Add one with `atelier clusters add NAME --address URL`.")
        return 0
    rows = [(one.spec.name, one.spec.place, one.spec.client, _state(one)) for one in found.clusters]
    say(table(("name", "place", "SDK", "state"), rows))
    return 0


async def _add(client: EngineClient, arguments: argparse.Namespace) -> int:
    spec = cluster_spec(arguments.name, arguments.address, arguments.client, arguments.through)
    await client.put_cluster(spec)
    say(f"{spec.name} was added. Test the connection: `atelier clusters check {spec.name}`.")
    return 0


async def _check(client: EngineClient, arguments: argparse.Namespace) -> int:
    await lend_cluster_key(client, arguments.name)
    view = await client.check_cluster(arguments.name)
    if arguments.json:
        say_json(view)
    elif view.report:
        say(_report(view))
    if view.problem and not arguments.json:
        complain(view.problem)
    return int(view.report is None)


async def _remove(client: EngineClient, arguments: argparse.Namespace) -> int:
    await client.remove_cluster(arguments.name)
    say(f"{arguments.name} was removed from the list.")
    return 0


async def _serve(client: EngineClient, arguments: argparse.Namespace) -> int:
    """Start SkyRL's server in the background with new settings, and wait until it is ready."""
    given = {name: getattr(arguments, name) for name in OPTIONS}
    chosen = {name: value for name, value in given.items() if value is not None}
    settings = skyrl_settings(arguments.model, **chosen)
    return await _begin(client, arguments, StartCluster(host=arguments.on, settings=settings))


async def _start(client: EngineClient, arguments: argparse.Namespace) -> int:
    """Start SkyRL's server of a listed cluster again."""
    spec = (await _view(client, arguments.name)).spec
    if spec.skyrl is None:
        raise Refused.of(
            "cluster.not_ours",
            f"{spec.name} was not started by Atelier.",
            "Start it where it was started, or use `atelier clusters serve`.",
        )
    return await _begin(client, arguments, StartCluster(host=spec.host, settings=spec.skyrl))


async def _begin(client: EngineClient, arguments: argparse.Namespace, request: StartCluster) -> int:
    name, where = arguments.name, request.host or "this machine"
    cluster_spec(name, "http://127.0.0.1")  # the name, before anything is started
    if request.host:
        await connected(client, request.host)
    progress, start_s = Progress(), time.monotonic()
    progress.show(f"{name}: uploading {request.settings.model} if {where} lacks it")
    view = await client.start_cluster(name, request)
    while (server := view.server) is None or server.state in STARTING:
        words = STATES[server.state] if server else "not connected"
        progress.show(f"{name}: {words} · {time.monotonic() - start_s:.0f} s")
        await asyncio.sleep(LOOK_S)
        view = await _view(client, name)
    progress.clear()
    if arguments.json:
        say_json(view)
    elif server.state == "running":
        say(
            f"{name} runs on {where}. Train on it: `atelier train PROJECT --cluster {name}`; "
            f"stop it: `atelier clusters stop {name}`."
        )
        say(f"Its log: {server.log}")
    elif server.problem:
        complain(server.problem)
    else:
        say(f"{name} is {STATES[server.state]}: it was stopped meanwhile.")
    return int(server.state != "running")


async def _stop(client: EngineClient, arguments: argparse.Namespace) -> int:
    view = await _view(client, arguments.name)
    if view.spec.host:
        await connected(client, view.spec.host)
    await client.stop_cluster(arguments.name)
    say(f"{arguments.name} was stopped. Its checkpoints are kept.")
    return 0


async def _commands(client: EngineClient, arguments: argparse.Namespace) -> int:
    """Print the commands that start SkyRL by hand."""
    settings = skyrl_settings(arguments.model)
    request = launch_request(settings, arguments.nodes, arguments.port)
    found = await client.launch_commands(request)
    if arguments.json:
        say_json(found)
        return 0
    for one in found.commands:
        say(f"# {one.title}")
        say(f"{one.command}\n")
    return 0


async def _view(client: EngineClient, name: str) -> ClusterView:
    """Cluster in the list. Raises Refused if there is none of this name."""
    clusters = (await client.clusters()).clusters
    if view := next((one for one in clusters if one.spec.name == name), None):
        return view
    raise Refused.of(
        "cluster.unknown",
        f"There is no cluster called {name}.",
        "`atelier clusters list` shows all.",
    )


ACTIONS = {
    "list": _list,
    "add": _add,
    "check": _check,
    "remove": _remove,
    "serve": _serve,
    "start": _start,
    "stop": _stop,
    "commands": _commands,
}


def _state(view: ClusterView) -> str:
    """State of a server that Atelier runs; empty for others."""
    if view.spec.skyrl is None:
        return ""
    if view.server is None:
        return f"{view.spec.host} is not connected"
    words = STATES[view.server.state]
    return f"{words}: {view.server.problem.message}" if view.server.problem else words


def _report(view: ClusterView) -> str:
    assert view.report is not None
    report = view.report
    count = len(report.models)
    lines = [
        f"{view.spec.name} serves {count} model{'s' * (count != 1)} "
        f"({report.client}, {report.seconds:.1f} s)"
    ]
    for model in report.models:
        context = f", {model.max_context:,} tokens" if model.max_context else ""
        lines.append(f"  {model.name}{context}")
    return "\n".join(lines)


def cluster_of(project: Path, overrides: dict[str, Any]) -> str:
    """Name of the cluster that the project's settings select; empty for none, or if the settings
    are invalid, which is reported when the run starts."""
    try:
        return load_config(project, overrides).backend.cluster
    except ConfigError:
        return ""


async def lend_cluster_key(client: EngineClient, name: str) -> None:
    """Send the engine, which keeps it in memory, the API key of a cluster (name empty: none), from
    the environment or typed without being shown. Asks for none if the engine has it, or if the
    address is a loopback one; SkyRL that Atelier starts gets none."""
    if not name:
        return
    clusters = (await client.clusters()).clusters
    view = next((one for one in clusters if one.spec.name == name), None)
    if view is None or view.spec.skyrl is not None:
        return  # an unknown cluster is refused when it is used
    if key := os.environ.get(KEY_VARIABLE, ""):
        await client.lend_cluster_key(name, key)
        return
    if view.has_key or is_loopback(view.spec.address):
        return
    if not sys.stdin.isatty():
        raise ConfigError.of(
            "cluster.no_key",
            f"There is no API key for {name}.",
            f"Set the variable {KEY_VARIABLE}, or run the command in a terminal.",
        )
    typed = await asyncio.to_thread(getpass.getpass, f"API key of {name}: ")
    await client.lend_cluster_key(name, typed.strip())
