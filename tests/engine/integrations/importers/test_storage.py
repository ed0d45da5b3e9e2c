"""Imports create a complete run or nothing."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from engine.integrations.importers.chat_messages import Source, TrajectoryBatch
from engine.integrations.importers.storage import Import, import_run
from engine.protocol.events.run import RunFinished, RunStarted, StepFinished, ValidationFinished
from engine.protocol.problems import AtelierError, ConfigError
from engine.protocol.records.metrics import metric
from engine.protocol.requests.runs import TrajectoryQuery
from engine.server.services.summaries import summarise
from studio.store.runs.state import RunState
from tests.engine.integrations.importers.conftest import import_source


def jsonl(file: Path, *entries: Any) -> Path:
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return file


def entry(text: str, reward: float | None = None) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Say it"}, {"role": "assistant", "content": text}]
    return {"messages": messages} | ({} if reward is None else {"reward": reward})


def test_art_folder_becomes_a_finished_run(art: Path, project: Path) -> None:
    reader = import_source(project, art)
    events = reader.events_of("run.started", "step.finished", "validation.finished", "run.finished")
    assert [type(event) for event in events] == [
        RunStarted, StepFinished, ValidationFinished, *[StepFinished] * 3, RunFinished,
    ]  # fmt: skip
    step = events[1]
    assert isinstance(step, StepFinished)
    assert (step.step, step.dropped, step.metrics["unscored"]) == (0, 1, 1)
    assert step.metrics["reward/mean"] == pytest.approx(2.25 / 3)
    assert all(map(metric, step.metrics)), step.metrics.keys()
    group = reader.group("train", 0, 0)
    assert group is not None
    assert group.rewards == [1.0, 0.25, None]
    assert group.advantages[2] is None
    assert reader.trajectory("t00000-000-000").advantage == group.advantages[0] != 0
    assert reader.trajectories(TrajectoryQuery(filter="blue")).total == 1
    (folder,) = (project / "runs").iterdir()
    summary = summarise(folder)
    assert (summary.kind, summary.name, summary.state) == ("imported", "agent-001", "finished")
    assert (summary.step, summary.steps, summary.trajectories, summary.unscored) == (3, 3, 11, 1)
    assert summary.baseline is not None
    state = RunState(summary.id).fold(reader.events_of(*kinds(reader)))
    assert (state.status, state.done, state.trajectories) == ("finished", 3, 11)
    reader.close()


def kinds(reader: Any) -> set[str]:
    return {json.loads(line)["kind"] for line in reader.events()}


def test_json_lines_become_one_step(project: Path, tmp_path: Path) -> None:
    file = jsonl(tmp_path / "talk.jsonl", entry("a", 1), entry("b"), entry("c", 0))
    reader = import_source(project, file)
    one, unscored, other = reader.stored("train", 1)
    assert (one.reward, unscored.reward, other.reward) == (1, None, 0)
    assert (one.advantage, unscored.advantage) == (0.5, None)
    assert unscored.problem is not None
    assert not unscored.awaits_judge
    reader.close()


@pytest.mark.parametrize("entries", [[entry("a"), {"nothing": 1}], []])
def test_invalid_file_leaves_nothing(project: Path, tmp_path: Path, entries: list[Any]) -> None:
    file = jsonl(tmp_path / "talk.jsonl", *entries)
    before = sorted(project.rglob("*"))
    with pytest.raises(ConfigError) as error:
        asyncio.run(import_run(project, file))
    assert str(file) in error.value.problem.where
    assert sorted(project.rglob("*")) == before


def test_failed_import_leaves_nothing(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = jsonl(tmp_path / "talk.jsonl", entry("a"))
    before = sorted(project.rglob("*"))

    async def fail_halfway(self: Import, source: Source) -> int:
        await Import.__dict__["_attempts"](self, next(iter(source.lots())))
        raise AtelierError.of("test.broken", "The disk is full.")

    monkeypatch.setattr(Import, "store", fail_halfway)
    with pytest.raises(AtelierError, match="disk is full"):
        asyncio.run(import_run(project, file))
    assert sorted(project.rglob("*")) == before


def test_cancelled_import_waits_for_its_reader_and_leaves_nothing(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    reading, closed = threading.Event(), []

    def lots() -> Any:
        try:
            reading.set()
            threading.Event().wait(0.2)
            yield TrajectoryBatch("train", 1, [])
        finally:
            closed.append(True)

    monkeypatch.setattr(
        "engine.integrations.importers.storage.open_source", lambda *_: Source("slow", 1, lots)
    )

    async def work() -> None:
        task = asyncio.create_task(import_run(project, tmp_path))
        await asyncio.to_thread(reading.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    before = sorted(project.rglob("*"))
    asyncio.run(work())
    assert closed
    assert sorted(project.rglob("*")) == before


def test_killed_import_is_cleaned_up_by_a_later_one(project: Path, tmp_path: Path) -> None:
    for name, age_s in ((".import-old", 90_000), (".import-new", 60)):
        (project / name).mkdir()
        os.utime(project / name, (time.time() - age_s,) * 2)
    import_source(project, jsonl(tmp_path / "talk.jsonl", entry("a"))).close()
    assert [one.name for one in project.glob(".import-*")] == [".import-new"]


def test_missing_source_or_project_is_reported(project: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        asyncio.run(import_run(project, tmp_path / "no.jsonl"))
    with pytest.raises(ConfigError, match="is not a project"):
        asyncio.run(import_run(tmp_path, jsonl(tmp_path / "a.jsonl", entry("a"))))
