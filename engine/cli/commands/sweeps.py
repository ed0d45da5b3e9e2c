"""`sweeps`: the sweeps of a project, newest first, or the table of one; read from disk, no engine
needed."""

import argparse
import time
from pathlib import Path

from engine.cli.sweep_text import closing_text, result_text
from engine.cli.terminal import say, say_json, table, warn
from engine.protocol.problems import ConfigError, StoreError
from engine.protocol.records.sweeps import SweepRecord
from engine.storage.project import read_toml
from engine.training.sweep.record import current_record, sweep_folders
from engine.training.sweep.view import summary_of, view_of


def run(arguments: argparse.Namespace) -> int:
    project = Path(arguments.project).expanduser().resolve()
    read_toml(project)
    found = _records(project)
    if arguments.sweep:
        return _show_one(found, arguments.sweep, arguments.json)
    if arguments.json:
        for folder, record in found:
            say_json(summary_of(record, folder))
        return 0
    if not found:
        say(f"No sweep yet. Start one: atelier sweep {arguments.project}")
        return 0
    views = [view_of(record, folder) for folder, record in found]
    rows = [
        (
            view.name,
            view.state,
            view.method,
            f"{view.trials_ended}/{view.trials_planned}",
            f"{view.steps_done}/{view.steps_planned}",
            result_text(view, view.result) if view.result else "–",
            time.strftime("%Y-%m-%d %H:%M", time.localtime(view.started_at)),
            view.path,
        )
        for view in views
    ]
    head = ("sweep", "state", "method", "trials", "steps", "best", "started", "folder")
    say(table(head, rows))
    return 0


def _records(project: Path) -> list[tuple[Path, SweepRecord]]:
    found = []
    for folder in sweep_folders(project):
        try:
            found.append((folder, current_record(folder)))
        except StoreError as error:
            warn(str(error))
    return found


def _show_one(found: list[tuple[Path, SweepRecord]], name: str, as_json: bool) -> int:
    for folder, record in found:
        if name in (record.id, record.name):
            view = view_of(record, folder)
            say_json(view) if as_json else say(closing_text(view))
            return 0
    raise ConfigError.of(
        "sweep.unknown",
        f"This project has no sweep {name}.",
        "List them with `atelier sweeps PROJECT`.",
    )
