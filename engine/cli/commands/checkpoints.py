"""`checkpoints`: list a run's checkpoints and why they are kept; pin, unpin, delete.

If an engine has the run open, the command uses that engine, else the run folder.
"""

import argparse
import asyncio
from pathlib import Path

from engine.cli.engine_connection import engine_of
from engine.cli.run_lookup import find_run_folder
from engine.cli.terminal import figure, say, say_json, table, validation_words
from engine.protocol.records.runs import KeptCheckpoint
from engine.protocol.requests.runs import PinCheckpoint
from engine.storage.checkpoints import retention
from engine.storage.run_folder.run import opened_run, read_spec, run_reader


def run(arguments: argparse.Namespace) -> int:
    folder = find_run_folder(arguments.run)
    read_spec(folder)
    if arguments.pin is not None or arguments.unpin is not None or arguments.delete is not None:
        asyncio.run(_change(folder, arguments))
    _show(_list(folder), arguments.json)
    return 0


async def _change(folder: Path, arguments: argparse.Namespace) -> None:
    spec, pinned = read_spec(folder), arguments.pin is not None
    step = arguments.pin if pinned else arguments.unpin
    wish = PinCheckpoint(pinned=pinned, note=arguments.note)
    async with engine_of(folder, arguments.workspace) as client:
        if client and step is None:
            await client.delete_checkpoint(spec.id, arguments.delete)
        elif client:
            await client.pin_checkpoint(spec.id, step, wish)
        else:
            with opened_run(folder) as opened:
                if step is None:
                    await retention.delete(opened, arguments.delete)
                else:
                    await retention.pin(opened, step, wish)


def _list(folder: Path) -> list[KeptCheckpoint]:
    with run_reader(folder) as reader:
        return retention.checkpoint_rows(folder, reader, read_spec(folder))


def _show(kept: list[KeptCheckpoint], as_json: bool) -> None:
    if as_json:
        for one in kept:
            say_json(one)
        return
    if not kept:
        return say("This run has no checkpoint yet.")
    rows = [
        (
            str(one.checkpoint.step),
            figure(one.checkpoint.metrics.get("reward/mean")),
            validation_words(one.validation, one.win_rate),
            f"{one.checkpoint.bytes / 1e6:.0f} MB",
            one.state,
            ", ".join(one.kept_by) or "deleted after the next checkpoint",
            one.note,
        )
        for one in kept
    ]
    say(table(("step", "reward", "validation", "size", "files", "kept because", "note"), rows))
