"""Runs, checkpoints and exports that change machines: fetched, brought home, sent."""

import asyncio
import shutil
from pathlib import Path

from engine.protocol.problems import Refused
from engine.protocol.records.runs import ACTIVE_STATES
from engine.protocol.requests.sync import SyncFolder
from engine.remote.mirror.record import FILE, Replicated, read_record, write_record
from engine.remote.server import Host
from engine.remote.started_runs import StartedRun, check_spec
from engine.remote.sync.download import PARTS, fetch
from engine.remote.sync.manifest import manifest, project_manifest
from engine.remote.sync.upload import Progress, push
from engine.storage.project import load_config
from engine.storage.run_db.schema import open_writer
from engine.storage.run_folder.run import DATABASE, read_spec

STAYS = (
    *("lock", "ballast", f"/{PARTS}/", FILE, f"{DATABASE}-wal", f"{DATABASE}-shm"),
    *("/track/", "/wandb/", "/tensorboard/"),
)
"""Files of a run folder that belong to this machine and are not sent."""


async def fetch_checkpoint(host: Host, run: Path, step: int, progress: Progress) -> Path:
    """The checkpoint's folder here, whole. Raises Refused, LaunchError (call it again)."""
    name = f"checkpoints/step-{step:06d}"
    found = await fetch(host.tunnel.client, run.name, run, name, progress)
    if not found:
        raise Refused.of(
            "checkpoint.unknown", f"{host.spec.name} keeps no checkpoint of step {step}."
        )
    return run / name


async def move_to_this_machine(host: Host, run: Path, progress: Progress) -> None:
    """Everything of a run is here, checked, and it is this machine's from now on; there it goes.

    Raises Refused while it goes on, LaunchError where the way is cut: call it again.
    """
    client = host.tunnel.client
    there = await client.run(run.name)
    if there.state in ACTIVE_STATES:
        raise Refused.of(
            "run.lives", f"{there.name} is active on {host.spec.name}.", "Stop it first, or wait."
        )
    if host.home.started.find(run.name, host.spec.name) is None:  # its settings came from there
        settings = await asyncio.to_thread(load_config, run.parents[1])
        check_spec(read_spec(run), run.name, settings, host.spec.name)
    await fetch(client, run.name, run, "", progress)
    await host.mirrors.catch_up(client, run)
    await host.mirrors.release(run)
    shutil.rmtree(run / PARTS, ignore_errors=True)
    await client.hand_over(run.name)


async def move_to_server(host: Host, run: Path, progress: Progress) -> None:
    """A run of this machine that nobody works on meanwhile is a server's from now on; what lies
    here is its replica.

    Raises Refused while it goes on here or is somewhere else, LaunchError where the way is cut:
    call it again.
    """
    if record := read_record(run):
        raise Refused.of(
            "run.elsewhere", f"This run is on {record.host}.", "Move it to this machine first."
        )
    client, project = host.tunnel.client, run.parents[1]
    name = host.home.folder_name(project)
    await asyncio.to_thread(lambda: open_writer(run / DATABASE).close())  # its log goes into it
    wanted = await asyncio.to_thread(project_manifest, project)
    asked = SyncFolder(folder=name, manifest=wanted)
    await push(client, project, asked, progress)
    everything = await asyncio.to_thread(manifest, run, STAYS)
    asked = SyncFolder(folder=name, run=run.name, manifest=everything)
    await push(client, run, asked, progress)
    spec = read_spec(run)
    host.home.started.add(
        StartedRun(
            run_id=spec.id,
            host=host.spec.name,
            project=str(project),
            config=spec.config,
            keys_at_home=spec.keys_at_home,
        )
    )
    write_record(run, Replicated(host=host.spec.name, folder=name))
    host.mirrors.touch(run.name)
