"""`import`: import trajectories of other programs as a run of a project, or the beginnings of their
conversations as scenarios. No engine needed."""

import argparse
import asyncio
from pathlib import Path

from engine.cli.terminal import say, say_json
from engine.integrations.importers.scenarios import import_scenarios
from engine.integrations.importers.storage import import_run
from engine.protocol.events.run import LogWritten
from engine.protocol.problems import ConfigError
from engine.protocol.records.runs import Split
from engine.server.services.summaries import summarise
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import DATABASE


def run(arguments: argparse.Namespace) -> int:
    project, source = (
        Path(path).expanduser().resolve() for path in (arguments.project, arguments.source)
    )
    if arguments.form == "scenarios":
        return _import_scenarios(arguments, project, source)
    if arguments.split:
        raise ConfigError.of(
            "import.split",
            "--split selects a scenario file, and trajectories are imported as a run.",
            "Add --as scenarios, or omit --split.",
        )
    folder = asyncio.run(import_run(project, source, arguments.model, arguments.mask))
    summary = summarise(folder)
    if arguments.json:
        say_json(summary)
        return 0
    unscored = f", {summary.unscored} of them unscored" if summary.unscored else ""
    say(f"{summary.trajectories} trajectories{unscored}. Run folder: {folder}")
    for note in _notes(folder):
        say(note)
    return 0


def _import_scenarios(arguments: argparse.Namespace, project: Path, source: Path) -> int:
    split: Split = "validation" if arguments.split == "validation" else "train"
    done = import_scenarios(project, source, split, arguments.model, arguments.mask)
    if arguments.json:
        say_json(done)
        return 0
    repeated = f", {done.repeated} repeated ones omitted" if done.repeated else ""
    noun = "scenario" if done.new == 1 else "scenarios"
    say(f"{done.new} new {noun}{repeated}. File: {done.path}")
    for note in done.notes:
        say(note)
    return 0


def _notes(folder: Path) -> list[str]:
    """Sentences that the import has written to the log of the run."""
    reader = RunReader(folder / DATABASE)
    try:
        events = reader.events_of("log.written")
    finally:
        reader.close()
    return [event.text for event in events if isinstance(event, LogWritten)]
