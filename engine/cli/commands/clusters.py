"""`clusters ACTION [NAME …]`: servers with Tinker's API that sample and train.

Exit 1: the action was refused or failed.
"""

import argparse
import asyncio
import getpass
import os
import sys
from pathlib import Path
from typing import Any

import platformdirs

from engine.cli.engine_connection import engine_for
from engine.cli.terminal import complain, say, say_json, table
from engine.client import EngineClient
from engine.integrations.skyrl.server import CLIENT, SkyrlPlan, skyrl_server
from engine.models.registry import find_model
from engine.protocol.addresses import is_loopback
from engine.protocol.problems import ConfigError, Problem
from engine.protocol.requests.clusters import KEY_VARIABLE, ClusterView, cluster_spec
from engine.storage.project import load_config


def run(arguments: argparse.Namespace) -> int:
    try:
        return asyncio.run(_run(arguments))
    except KeyboardInterrupt:
        say("Stopped.")
        return 130


async def _run(arguments: argparse.Namespace) -> int:
    if arguments.action == "serve":
        return await _serve(arguments)
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
    rows = [(one.spec.name, one.spec.address, one.spec.client) for one in found.clusters]
    say(table(("name", "address", "SDK"), rows))
    return 0


async def _add(client: EngineClient, arguments: argparse.Namespace) -> int:
    spec = cluster_spec(arguments.name, arguments.address, arguments.client)
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


async def _serve(arguments: argparse.Namespace) -> int:
    """Run SkyRL's server until Ctrl C. Its state is kept, so the next start continues."""
    state = Path(platformdirs.user_data_dir("atelier")) / "skyrl" / arguments.name
    cluster_spec(arguments.name, "http://127.0.0.1")  # the name, before anything is started
    model = await asyncio.to_thread(find_model, arguments.model)
    plan = SkyrlPlan(model=model, state=state, port=arguments.port)
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    say(f"Starting SkyRL's server with {arguments.model}. Its log: {state / 'log'}")
    async with skyrl_server(plan, state / "log") as server:
        spec = cluster_spec(arguments.name, server.address, CLIENT)
        async with engine_for(arguments.workspace) as client:
            await client.put_cluster(spec)
        say(
            f"{spec.name} is ready at {server.address}. Train on it: `atelier train PROJECT "
            f"--cluster {spec.name}`. Ctrl C ends it; checkpoints stay."
        )
        await server.ended()
    complain(
        Problem(code="cluster.ended", message="SkyRL's server has ended.", hint="See its log.")
    )
    return 1


ACTIONS = {"list": _list, "add": _add, "check": _check, "remove": _remove}


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
    cluster is on this machine."""
    if not name:
        return
    if key := os.environ.get(KEY_VARIABLE, ""):
        await client.lend_cluster_key(name, key)
        return
    clusters = (await client.clusters()).clusters
    view = next((one for one in clusters if one.spec.name == name), None)
    if view is None or view.has_key or is_loopback(view.spec.address):
        return  # an unknown cluster is refused when it is used
    if not sys.stdin.isatty():
        raise ConfigError.of(
            "cluster.no_key",
            f"There is no API key for {name}.",
            f"Set the variable {KEY_VARIABLE}, or run the command in a terminal.",
        )
    typed = await asyncio.to_thread(getpass.getpass, f"API key of {name}: ")
    await client.lend_cluster_key(name, typed.strip())
