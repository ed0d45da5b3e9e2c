"""`label`: list groups to label; export, import, undo or redo a person's labels of a run.

If an engine has the run open, the command uses that engine, else the run folder.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from engine.cli.engine_connection import engine_of
from engine.cli.run_lookup import find_run_folder
from engine.cli.terminal import figure, say, say_json, table
from engine.client import EngineClient
from engine.integrations.importers.jsonl import read_lines
from engine.judge.calibration.annotators import annotators
from engine.judge.calibration.review_candidates import review_queue
from engine.protocol.problems import Refused
from engine.protocol.records.labels import Label, Labelled, labels_of_lines
from engine.protocol.requests.review import ReviewQuery
from engine.protocol.requests.runs import Command
from engine.storage.run_folder.run import opened_run, read_spec, run_reader
from engine.training.labels.service import LabelService


class LabelTarget(Protocol):
    """Target of labels: the engine that has the run open, or the run folder itself."""

    async def add(self, label: Label) -> Labelled: ...

    async def undo(self) -> Labelled: ...

    async def redo(self) -> Labelled: ...

    async def done(self) -> None: ...


def run(arguments: argparse.Namespace) -> int:
    folder = find_run_folder(arguments.run)
    read_spec(folder)
    match arguments.action:
        case "export":
            return export(folder, arguments)
        case "annotators":
            return list_annotators(folder, arguments)
        case "queue":
            return list_queue(folder, arguments)
    return asyncio.run(change(folder, arguments))


def export(folder: Path, arguments: argparse.Namespace) -> int:
    """Print a run's labels as JSON lines, oldest first: those not undone, or with --all every
    label."""
    with run_reader(folder) as reader:
        for label in reader.labels():
            if label.holds() or arguments.all:
                say_json(label)
    return 0


def list_queue(folder: Path, arguments: argparse.Namespace) -> int:
    """Print the unlabelled groups of a run, most informative first, with the reason for each."""
    query = ReviewQuery(
        reasons=tuple(arguments.reason),
        split=arguments.split,
        annotator=arguments.annotator,
        limit=arguments.limit,
    )
    with run_reader(folder) as reader:
        queue = review_queue(reader, query, read_spec(folder).config.reward.weights)
    if arguments.json:
        say_json(queue)
        return 0
    if not queue.items:
        say("No group is left for which a label would be informative.")
        return 0
    rows = [
        (str(one.step), str(one.group + 1), one.title[:40], f"{one.value:.2f}", one.words)
        for one in queue.items
    ]
    say(table(("step", "group", "scenario", "value", "reason"), rows))
    say(f"{len(rows)} of {queue.total} groups shown")
    return 0


def list_annotators(folder: Path, arguments: argparse.Namespace) -> int:
    """Print the annotators of a run, and for each pair of them how far their labels agree."""
    with run_reader(folder) as reader:
        found = annotators(reader)
    if arguments.json:
        say_json(found)
        return 0
    if not found.annotators:
        say("Nobody has labelled this run yet.")
        return 0
    people = [
        (one.name or "unnamed", str(one.labels), str(one.groups), str(one.blind))
        for one in found.annotators
    ]
    say(table(("annotator", "labels", "groups", "blind"), people))
    if found.pairs:
        rows = [
            (
                f"{pair.one or 'unnamed'}, {pair.other or 'unnamed'}",
                str(pair.groups),
                str(pair.pairs),
                figure(pair.tau.mean if pair.tau else None),
                figure(pair.accuracy),
            )
            for pair in found.pairs
        ]
        say(table(("annotators", "groups", "pairs", "τ", "same order"), rows))
    return 0


async def change(folder: Path, arguments: argparse.Namespace) -> int:
    async with _open_target(folder, arguments) as target:
        match arguments.action:
            case "import":
                for label in await asyncio.to_thread(read_labels, Path(arguments.file)):
                    _tell(await target.add(label), arguments)
            case "undo":
                _tell(await target.undo(), arguments)
            case "redo":
                _tell(await target.redo(), arguments)
            case "done":
                await target.done()
    return 0


def read_labels(file: Path) -> list[Label]:
    """Read labels from a file. Raises ConfigError with the first invalid line."""
    return labels_of_lines(read_lines(file), str(file))


@asynccontextmanager
async def _open_target(folder: Path, arguments: argparse.Namespace) -> AsyncIterator[LabelTarget]:
    async with engine_of(folder, arguments.workspace) as client:
        if client:
            yield _EngineLabels(client, read_spec(folder).id)
            return
        with opened_run(folder) as opened:
            yield _LocalLabels(opened)


class _LocalLabels(LabelService):
    async def add(self, label: Label) -> Labelled:
        return await super().add(label.for_run(self.run_id))

    async def done(self) -> None:
        raise Refused.of("run.not_living", "This run is not active, so there is no review to end.")


class _EngineLabels:
    def __init__(self, client: EngineClient, run_id: str) -> None:
        self._client = client
        self._run_id = run_id

    async def add(self, label: Label) -> Labelled:
        return await self._client.add_label(self._run_id, label)

    async def undo(self) -> Labelled:
        return await self._client.undo_label(self._run_id)

    async def redo(self) -> Labelled:
        return await self._client.redo_label(self._run_id)

    async def done(self) -> None:
        await self._client.command(self._run_id, Command(action="reviewed"))


def _tell(done: Labelled, arguments: argparse.Namespace) -> None:
    if arguments.json:
        say_json(done)
        return
    label = done.label
    words = ", ".join(word.kind for word in label.words)
    state = "undone" if label.undone else "in effect"
    say(f"Step {label.step}, group {label.group + 1}: {words} ({state})")
