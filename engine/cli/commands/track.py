"""`track`: send a run to its trackers.

Exit 0 if all trackers are up to date, 1 if one could not be sent all data.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Callable

from engine.cli.engine_connection import engine_for
from engine.cli.run_lookup import find_run_folder
from engine.cli.terminal import say, say_json
from engine.client import EngineClient
from engine.protocol.config.tracking import TRACKERS, TrackerList, sentence_of, tracker_keys_in
from engine.protocol.problems import ConfigError
from engine.protocol.records.runs import RunSummary
from engine.storage.run_folder.run import read_spec

LOOK_S = 0.5
PATIENCE_S = 20.0


def run(arguments: argparse.Namespace) -> int:
    return asyncio.run(track(arguments))


async def track(arguments: argparse.Namespace) -> int:
    folder = find_run_folder(arguments.run)
    if unknown := [name for name in arguments.to if name not in TRACKERS]:
        raise ConfigError.of(
            "track.unknown",
            f"There is no tracker {unknown[0]}.",
            f"Use one of {', '.join(TRACKERS)}.",
        )
    spec = read_spec(folder)
    async with engine_for(arguments.workspace) as client:
        await client.project(str(folder.parents[1]))  # an engine knows what it was shown
        await lend_tracker_keys(client)
        await client.track(spec.id, arguments.to)
        found = await _settled(client, spec.id, lambda now: not now.sending or _in_step(now))
    _tell(found, arguments.json)
    wanted = [one for one in found.trackers if not arguments.to or one.name in arguments.to]
    return 0 if all(one.state == "in_step" for one in wanted) else 1


async def lend_tracker_keys(client: EngineClient) -> None:
    """Lend the engine the trackers' API keys in this terminal's environment."""
    if keys := tracker_keys_in(os.environ):
        await client.lend_tracker_keys(keys)


async def wait_for_trackers(client: EngineClient, run: RunSummary, as_json: bool) -> None:
    """Wait until the experiment trackers of an ended run have its data, at most `PATIENCE_S`
    seconds, and print their states; with `as_json` only wait."""
    end = time.monotonic() + PATIENCE_S
    found = await _settled(client, run.id, lambda now: not now.sending or time.monotonic() > end)
    if as_json or not found.trackers:
        return  # stdout carries the events of the run and nothing else
    _tell(found, as_json)
    if any(one.state != "in_step" for one in found.trackers):
        say(f"Upload missing data with: atelier track {run.path}")


async def _settled(
    client: EngineClient, run_id: str, done: Callable[[TrackerList], bool]
) -> TrackerList:
    while True:
        found = await client.trackers(run_id)
        if done(found):
            return found
        await asyncio.sleep(LOOK_S)


def _in_step(now: TrackerList) -> bool:
    """Whether all trackers are up to date; those of an active run keep receiving data."""
    return all(one.state not in ("opening", "behind") for one in now.trackers)


def _tell(found: TrackerList, as_json: bool) -> None:
    if as_json:
        say_json(found)
        return
    for view in found.trackers:
        say(f"  {sentence_of(view)}" + (f" · {view.url}" if view.url else ""))
