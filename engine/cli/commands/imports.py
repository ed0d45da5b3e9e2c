"""`import`: import trajectories of other programs as a run of a project. No engine needed."""

import argparse
import asyncio
from pathlib import Path

from engine.cli.terminal import say, say_json
from engine.integrations.importers.storage import import_run
from engine.server.services.summaries import summarise


def run(arguments: argparse.Namespace) -> int:
    project, source = (
        Path(path).expanduser().resolve() for path in (arguments.project, arguments.source)
    )
    folder = asyncio.run(import_run(project, source, arguments.model))
    summary = summarise(folder)
    if arguments.json:
        say_json(summary)
        return 0
    unscored = f", {summary.unscored} of them unscored" if summary.unscored else ""
    say(f"{summary.trajectories} trajectories{unscored}. Run folder: {folder}")
    return 0
