"""`runs`: the runs of a project, newest first; read from disk, no engine needed."""

import argparse
import time
from pathlib import Path

from engine.cli.terminal import duration, figure, say, say_json, sparkline, table, validation_words
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.run_table import RunQuery
from engine.server.services.library import Library
from engine.server.services.run_table.table import page_of
from engine.storage.project import read_toml

HEAD = (
    "run", "kind", "state", "step", "reward", "validation", "", "tags", "trained", "started",
    "folder",
)  # fmt: skip
MOST_ROWS = 1000
LEAST_IDLE_S = 60.0


def run(arguments: argparse.Namespace) -> int:
    project = Path(arguments.project).expanduser().resolve()
    read_toml(project)
    query = RunQuery(
        project=str(project),
        search=arguments.search,
        tag=arguments.tag,
        archived=arguments.archived,
        sort=arguments.sort,
        limit=min(arguments.limit, MOST_ROWS),
    )
    page = page_of(Library(project.parent).runs(project), query)
    runs = page.items
    if arguments.json:
        for found in runs:
            say_json(found)
        return 0
    if page.runs and not runs:
        say(f"None of the {page.runs} runs matches; {page.archived} are archived.")
        return 0
    if not runs:
        say(f"No run yet. Start one: atelier train {arguments.project}")
        return 0
    rows = [
        (
            found.name,
            found.source or found.kind,
            found.state,
            _progress(found),
            figure(found.rewards[-1] if found.rewards else None),
            validation_words(found.validation, found.win_rate),
            sparkline(found.rewards),
            ", ".join(found.notes.tags),
            _times(found),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(found.started_at)),
            found.path,
        )
        for found in runs
    ]
    say(table(HEAD, rows))
    return 0


def _times(run: RunSummary) -> str:
    """Training time, and the idle time of pauses and interruptions from a minute on."""
    idle = f", idle {duration(run.idle_s)}" if run.idle_s >= LEAST_IDLE_S else ""
    return f"{duration(run.trained_s)}{idle}" if run.trained_s else ""


def _progress(run: RunSummary) -> str:
    """Progress of a run in steps, or of an evaluation in rollouts."""
    if run.kind == "evaluation":
        return f"{run.trajectories}/{run.attempts}"
    return f"{run.step}/{run.steps}" if run.steps else str(run.step)
