"""An export of a run that is elsewhere: written and proven where the run is, then brought here."""

import contextlib
import secrets
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from pydantic import BaseModel

from engine.export.model_card import served_name
from engine.export.publish import Place
from engine.export.serving import commands_for
from engine.protocol.problems import AtelierError, LaunchError
from engine.protocol.requests.exports import ExportCheckpoint, ExportReport, ExportTicked
from engine.remote.server import Host
from engine.remote.sync.download import fetch
from engine.runtime.files import move_into_place
from engine.storage.run_folder.run import read_spec

FOLDER = "exports"
SHARE_THERE = 0.7
"""Share of the progress that is done on the server."""


async def export_remote(
    host: Host,
    run: Path,
    step: int | None,
    asked: ExportCheckpoint,
    say: Callable[[BaseModel], None],
) -> ExportReport:
    """The report, with files at `asked.out` on this machine. Raises ConfigError for a folder that
    cannot be one, Refused, LaunchError; nothing is left behind there."""
    client = host.tunnel.client
    await client.forget_files(run.name, FOLDER)  # of one that was cut off
    place = Place.claim(asked.out, 0)
    name = f"{FOLDER}/{secrets.token_hex(6)}"
    there = (await client.run(run.name)).path
    try:
        report: ExportReport | None = None
        request = asked.model_copy(update={"out": f"{there}/{name}"})
        async with aclosing(client.export(run.name, step, request)) as told:
            async for one in told:
                if isinstance(one, ExportReport):
                    report = one
                else:
                    say(one.model_copy(update={"share": one.share * SHARE_THERE}))
        if report is None:
            raise LaunchError.of("host.away", f"{host.spec.name} was lost; try again.")

        def came(done: int, total: int) -> None:
            share = SHARE_THERE + (1 - SHARE_THERE) * done / max(1, total)
            words = f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"
            tick = ExportTicked(phase="fetching", words=words, done=done, total=total, share=share)
            say(tick)

        await fetch(client, run.name, place.work, name, came)
        move_into_place(place.work / name, place.target)
        return _ours(report, run, asked, place.target)
    finally:
        place.clear()
        with contextlib.suppress(AtelierError):  # the next one clears it away
            await client.forget_files(run.name, FOLDER)


def _ours(report: ExportReport, run: Path, asked: ExportCheckpoint, target: Path) -> ExportReport:
    """Report with the local folder, and commands that are built here: a person runs them, so the
    server's text is not used."""
    spec = read_spec(run)
    commands = commands_for(
        target,
        asked.format,
        report.parity.computed_in,
        spec.config.model.name,
        served_name(spec),
        spec.config.model.rank,
    )
    known = {"run_id": spec.id, "path": str(target), "commands": commands}
    return report.model_copy(update=known)
