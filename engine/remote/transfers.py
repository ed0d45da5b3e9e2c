"""Transfers of runs, checkpoints and exports between machines: fetch, move, export."""

import asyncio
import contextlib
import secrets
import shutil
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from pydantic import BaseModel

from engine.export.model_card import served_name
from engine.export.publish import Place
from engine.export.serving import commands_for
from engine.protocol.problems import AtelierError, LaunchError, Refused
from engine.protocol.records.runs import ACTIVE_STATES
from engine.protocol.requests.exports import ExportCheckpoint, ExportReport, ExportTicked
from engine.protocol.requests.sync import SyncFolder
from engine.remote.mirror.record import FILE, Replicated, read_record, write_record
from engine.remote.server import Host
from engine.remote.started_runs import StartedRun, check_spec
from engine.remote.sync.download import PARTS, fetch, turn
from engine.remote.sync.manifest import manifest, project_manifest
from engine.remote.sync.upload import Progress, push
from engine.runtime.files import move_into_place
from engine.storage.project import load_config
from engine.storage.run_db.schema import open_writer
from engine.storage.run_folder.images import INPUTS
from engine.storage.run_folder.run import DATABASE, read_spec

STAYS = (
    *("lock", "ballast", f"/{PARTS}/", FILE, f"{DATABASE}-wal", f"{DATABASE}-shm"),
    *("/track/", "/wandb/", "/tensorboard/", f"/{INPUTS}/"),
)
"""Files of a run folder that belong to this machine and are not sent."""


async def fetch_checkpoint(host: Host, run: Path, step: int, progress: Progress) -> Path:
    """Download the checkpoint of a step of the run mirrored in `run`; returns its local folder.
    `progress` receives bytes done and in total. Raises Refused if the server has none, LaunchError
    if the connection is lost (the next call resumes)."""
    name = f"checkpoints/step-{step:06d}"
    found = await fetch(host.tunnel.client, run.name, run, name, progress)
    if not found:
        raise Refused.of(
            "checkpoint.unknown", f"{host.spec.name} has no checkpoint of step {step}."
        )
    return run / name


async def move_to_this_machine(host: Host, run: Path, progress: Progress) -> None:
    """Move the run mirrored in `run` to this machine: download and verify all its files, then
    delete it on the server. `progress` receives bytes done and in total. Raises Refused while the
    run is active, LaunchError if the connection is lost (may be retried)."""
    client = host.tunnel.client
    there = await client.run(run.name)
    if there.state in ACTIVE_STATES:
        raise Refused.of(
            "run.lives",
            f"The run {there.name} is active on {host.spec.name}.",
            "Stop the run first, or wait.",
        )
    if host.home.started.find(run.name, host.spec.name) is None:  # its settings came from there
        settings = await asyncio.to_thread(load_config, run.parents[1])
        check_spec(read_spec(run), run.name, settings, host.spec.name)
    await fetch(client, run.name, run, "", progress)
    await host.mirrors.catch_up(client, run)
    await host.mirrors.release(run)
    async with turn(run):
        await asyncio.to_thread(shutil.rmtree, run / PARTS, ignore_errors=True)
    await client.hand_over(run.name)


async def move_to_server(host: Host, run: Path, progress: Progress) -> None:
    """Move the inactive run in folder `run` to a server; the folder becomes a mirror. No other
    process may use the run meanwhile; `progress` receives bytes done and in total. Raises Refused
    while the run is active or is on a server, LaunchError if the connection is lost (retry it)."""
    if record := read_record(run):
        raise Refused.of(
            "run.elsewhere", f"This run is on {record.host}.", "Move the run to this machine first."
        )
    client, project = host.tunnel.client, run.parents[1]
    name = host.home.folder_name(project)
    await asyncio.to_thread(lambda: open_writer(run / DATABASE).close())  # its log goes into it
    wanted = await asyncio.to_thread(project_manifest, project)
    request = SyncFolder(folder=name, manifest=wanted)
    await push(client, project, request, progress)
    everything = await asyncio.to_thread(manifest, run, STAYS)
    request = SyncFolder(folder=name, run=run.name, manifest=everything)
    await push(client, run, request, progress)
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


FOLDER = "exports"
SHARE_THERE = 0.7
"""Fraction of an export's progress bar for the part on the server; the rest is the download."""


async def export_remote(
    host: Host,
    run: Path,
    step: int | None,
    request: ExportCheckpoint,
    say: Callable[[BaseModel], None],
) -> ExportReport:
    """Export a checkpoint (`step` None: the newest) on the server and download it to `request.out`;
    `say` receives progress. The server's copy is deleted. Raises ConfigError for an unusable
    folder, Refused, LaunchError."""
    client = host.tunnel.client
    await client.forget_files(run.name, FOLDER)  # of one that was cut off
    place = Place.claim(request.out, 0)
    name = f"{FOLDER}/{secrets.token_hex(6)}"
    there = (await client.run(run.name)).path
    try:
        report: ExportReport | None = None
        remote_request = request.model_copy(update={"out": f"{there}/{name}"})
        async with aclosing(client.export(run.name, step, remote_request)) as messages:
            async for one in messages:
                if isinstance(one, ExportReport):
                    report = one
                else:
                    say(one.model_copy(update={"share": one.share * SHARE_THERE}))
        if report is None:
            raise LaunchError.of("host.away", f"{host.spec.name} disconnected; try again.")

        def came(done: int, total: int) -> None:
            share = SHARE_THERE + (1 - SHARE_THERE) * done / max(1, total)
            words = f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"
            tick = ExportTicked(phase="fetching", words=words, done=done, total=total, share=share)
            say(tick)

        await fetch(client, run.name, place.work, name, came)
        move_into_place(place.work / name, place.target)
        return _ours(report, run, request, place.target)
    finally:
        place.clear()
        with contextlib.suppress(AtelierError):  # the next one clears it away
            await client.forget_files(run.name, FOLDER)


def _ours(report: ExportReport, run: Path, request: ExportCheckpoint, target: Path) -> ExportReport:
    """Report with the local folder. Commands are built here, for the programs that the server
    named: the person runs them, so text from the server is not used."""
    spec = read_spec(run)
    commands = commands_for(
        target,
        request.format,
        report.parity.computed_in,
        spec.config.model.name,
        served_name(spec),
        spec.config.model.rank,
        experts=spec.config.model.adapt_experts,
    )
    tools = {one.tool for one in report.commands}
    commands = [one for one in commands if one.tool in tools]
    known = {"run_id": spec.id, "path": str(target), "commands": commands}
    return report.model_copy(update=known)
