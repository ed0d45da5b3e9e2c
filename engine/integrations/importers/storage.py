"""Import of trajectories (a file, or a folder of ART) as a run folder: complete or not at all.

The run is written to a hidden folder and moved into place when complete. It gets the project's
current settings, so that judges and labels work as on any run. It has no weights, so it cannot be
trained further.
"""

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from engine.evaluation.validation import scenario_means
from engine.integrations.importers.art import open_art, open_art_file
from engine.integrations.importers.chat_messages import Source, TrajectoryBatch, empty_source
from engine.integrations.importers.jsonl import open_jsonl
from engine.integrations.importers.masking import Masker, masked
from engine.integrations.importers.traces.source import open_traces
from engine.judge.prompting.rubric import load_rubric
from engine.protocol.config.project import ProjectConfig
from engine.protocol.events.run import (
    BatchClosed,
    LogWritten,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    ValidationFinished,
)
from engine.protocol.problems import ConfigError
from engine.protocol.records.runs import Interval, RunSpec
from engine.reward.advantage.group import group_summary, interval
from engine.runtime.files import move_into_place
from engine.runtime.ids import ulid
from engine.storage.project import load_config
from engine.storage.run_db.writer import RunWriter
from engine.storage.run_folder.run import DATABASE, write_spec
from engine.training.step.metrics import rewards
from engine.training.step.update_groups import planned_groups
from engine.trust.files import project_file

T = TypeVar("T")

AT_ONCE = 100
SCRATCH = ".import-"
FORGOTTEN_S = 86_400.0


async def import_run(project: Path, source: Path, model: str = "", mask: bool = False) -> Path:
    """Import a folder or file of trajectories as a new run of the project and return its folder.
    `model` selects one in an .art folder (empty: the only one); `mask` replaces personal data.
    Raises ConfigError or StoreError."""
    found = await asyncio.to_thread(open_source, source, model)
    found = masked(found, Masker()) if mask else found
    config = load_config(project, {"train.steps": max(found.last, 1)})
    spec = RunSpec(
        id=ulid(),
        name=found.name,
        kind="imported",
        project=config.name or project.name,
        started_at=time.time(),
        config=config,
        model_path="",
        rubric=_rubric(project, config),
    )
    _sweep(project)
    with tempfile.TemporaryDirectory(dir=project, prefix=SCRATCH) as scratch:
        folder = Path(scratch) / spec.id
        folder.mkdir()
        writer = RunWriter(folder / DATABASE, spec.id)
        try:
            if not await Import(writer, spec).store(found):
                raise empty_source(source, "Import a file or folder with at least one trajectory.")
        finally:
            await asyncio.to_thread(writer.close)
        write_spec(folder, spec)
        (project / "runs").mkdir(exist_ok=True)
        return move_into_place(folder, project / "runs" / spec.id)


class Import:
    """Writer of the events of an imported run."""

    def __init__(self, writer: RunWriter, spec: RunSpec) -> None:
        self._writer = writer
        self._spec = spec
        self._rewards: list[float] = []
        self._validations: dict[int, Interval | None] = {}

    async def store(self, source: Source) -> int:
        """Store a source's batches (training steps and validations), and the events that begin and
        end a run; returns the number of batches."""
        start_s, count = time.monotonic(), 0
        await self._writer.say(RunStarted(spec=self._spec))
        for note in source.notes:
            await self._writer.say(LogWritten(level="warning", source="import", text=note))
        with contextlib.closing(source.lots()) as lots:  # type: ignore[type-var]
            while (lot := await _next(lots)) is not None:
                count += 1
                await (self._step(lot) if lot.split == "train" else self._validation(lot))
        for note in source.last_notes():
            await self._writer.say(LogWritten(level="info", source="import", text=note))
        await self._writer.say(
            RunFinished(
                step=source.last,
                seconds=time.monotonic() - start_s,
                reward_first=self._rewards[0] if self._rewards else None,
                reward_last=self._rewards[-1] if self._rewards else None,
                validation=self._validations.get(max(self._validations, default=0)),
                baseline=self._validations.get(0),
            )
        )
        return count

    async def _step(self, lot: TrajectoryBatch) -> None:
        await self._writer.say(StepStarted(step=lot.step, groups=planned_groups(lot.groups)))
        await self._attempts(lot)
        await self._writer.say(BatchClosed(step=lot.step))
        metrics = rewards(lot.groups, self._spec.config.train.algorithm.advantage)
        self._rewards += [metrics["reward/mean"]] if "reward/mean" in metrics else []
        await self._writer.say(StepFinished(step=lot.step, metrics=metrics, dropped=lot.dropped))

    async def _validation(self, lot: TrajectoryBatch) -> None:
        start_s = time.monotonic()
        await self._attempts(lot)
        means = scenario_means(lot.groups)
        self._validations[lot.step] = interval(list(means.values()))
        await self._writer.say(
            ValidationFinished(
                step=lot.step,
                reward=self._validations[lot.step],
                scenarios=means,
                unscored=sum(one.reward is None for group in lot.groups for one in group),
                seconds=time.monotonic() - start_s,
            )
        )

    async def _attempts(self, lot: TrajectoryBatch) -> None:
        """Store trajectories and groups in chunks, so that the engine stays responsive."""
        kind = self._spec.config.train.algorithm.advantage
        everyone = [one for group in lot.groups for one in group]
        for some in _parts(everyone):
            await asyncio.gather(*map(self._writer.add_trajectory, some))
        for groups in _parts(lot.groups):
            summaries = [group_summary(kind, group) for group in groups]
            await asyncio.gather(*map(self._writer.add_group, summaries))


def _sweep(project: Path) -> None:
    """Delete folders of killed imports, older than a day."""
    for scratch in project.glob(f"{SCRATCH}*"):
        if time.time() - scratch.stat().st_mtime > FORGOTTEN_S:
            shutil.rmtree(scratch)


def _parts(items: list[T]) -> Iterator[list[T]]:
    return (items[first : first + AT_ONCE] for first in range(0, len(items), AT_ONCE))


async def _next(lots: Iterator[TrajectoryBatch]) -> TrajectoryBatch | None:
    """Read the next batch in a thread. Cancelling waits for it, so that `lots` can be closed."""
    reading = asyncio.ensure_future(asyncio.to_thread(next, lots, None))
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        await asyncio.wait([reading])
        raise


def _rubric(project: Path, config: ProjectConfig) -> str:
    """Text of the project's rubric, or an empty string. Raises ConfigError if invalid."""
    file = project_file(project, config.judge.rubric, "judge.rubric")
    return load_rubric(file).source if file.exists() else ""


def open_source(path: Path, model: str = "") -> Source:
    """Return a source for a file or folder; `model` selects one in an .art folder (empty: the only
    one). Raises ConfigError."""
    if path.is_dir():
        return open_art(path, model)
    if not path.exists():
        raise ConfigError.of(
            "import.no_source",
            "This file or folder does not exist.",
            "Pass a JSONL file of chat messages, a file of traces, or an .art folder.",
            where=str(path),
        )
    if not path.is_file() or "\n" in str(path):
        raise ConfigError.of(
            "import.no_file",
            "This is neither a folder nor a regular file.",
            "Pass a JSONL file of chat messages, a file of traces, or an .art folder; save the "
            "output of a pipe to a file first.",
            where=str(path),
        )
    if path.suffix == ".parquet":
        return open_art_file(path)
    return open_traces(path) or open_jsonl(path)
