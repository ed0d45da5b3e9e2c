"""The arena of a project: a run folder of its own, to which every question adds a group."""

import asyncio
import contextlib
import time
from pathlib import Path

from engine.evaluation.arena.votes import duels
from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.validation import changed_config
from engine.protocol.records.runs import RunSpec
from engine.protocol.requests.arena import Tally
from engine.runtime.ids import ulid
from engine.storage.project import load_config
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import DATABASE, make_open_ended_run, read_spec, specs_of
from engine.trust.projects import is_trusted, is_trusted_run

NAME = "arena"


def find_arena(project: Path) -> Path | None:
    """Folder of the arena, preferring one that was begun here; None before the first question."""
    found = [folder for folder, spec in specs_of(project) if spec.kind == "arena"]
    return min(found, key=lambda folder: not is_trusted_run(folder), default=None)


async def make_arena(project: Path) -> Path:
    """Raises ConfigError where the project cannot be read."""
    config = load_config(project)
    spec = RunSpec(
        id=ulid(),
        name=NAME,
        kind="arena",
        project=config.name or project.name,
        started_at=time.time(),
        config=without_judge(config),
        model_path="",
    )
    return await make_open_ended_run(project, spec)


async def find_or_make_arena(project: Path) -> Path:
    """Raises ConfigError where the project cannot be read."""
    found = await asyncio.to_thread(find_arena, project)
    if found is None or (is_trusted(project) and not is_trusted_run(found)):
        return await make_arena(project)  # a stranger's is not added to: its settings would count
    return found


def without_judge(config: ProjectConfig) -> ProjectConfig:
    """Settings with the judge off: in the arena, people vote."""
    return changed_config(config, {"judge.enabled": False})


def read_tally(project: Path) -> Tally:
    folder = find_arena(project)
    if folder is None:
        return Tally()
    with contextlib.closing(RunReader(folder / DATABASE)) as reader:
        labels = reader.labels("validation")
        named = [
            name
            for label in labels
            for word in label.words
            for layer in word.order
            for name in layer
        ]
        names = {row.id: row.contestant for row in reader.summaries(named)}
    votes = sum(label.holds() and any(w.kind == "order" for w in label.words) for label in labels)
    return Tally(run_id=read_spec(folder).id, votes=votes, pairs=duels(labels, names))
