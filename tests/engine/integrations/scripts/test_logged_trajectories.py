"""Trajectories logged by a script are stored once, even if logs overlap or repeat."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.integrations.scripts.completions import Completions
from engine.integrations.scripts.logged_trajectories import store_logged
from engine.integrations.scripts.logs import Logs
from engine.protocol.base import BaseEvent
from engine.protocol.config.project import ProjectConfig
from engine.protocol.events.run import ValidationFinished
from engine.protocol.problems import StoreError
from engine.protocol.records.runs import RunSpec, Trajectory
from engine.protocol.requests.scripts import LogOutside, SentAttempt, SentGroup
from engine.runtime.ids import ulid
from engine.storage.run_folder.run import Run, write_spec

CHAT: Any = None
"""Unused: none of these trajectories was sampled by the policy."""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    spec = RunSpec(
        id=ulid(), name="agent-001", project="p", started_at=time.time(), model_path="/m",
        config=ProjectConfig(),
    )  # fmt: skip
    folder = tmp_path / "runs" / spec.id
    folder.mkdir(parents=True)
    write_spec(folder, spec)
    run = Run(folder, spec, lambda tick: None)
    yield run
    run.close()


class ScriptEngine:
    """Engine state of a script; a new instance loads it from the same files."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.completions = Completions(run.folder / "completions.jsonl")
        self.logs = Logs(run.folder / "logged.jsonl")

    async def log(self, request: LogOutside) -> None:
        await store_logged(self.run, request, self.logs, self.completions, CHAT)

    @property
    def stored(self) -> list[Trajectory]:
        return self.run.reader.stored("validation", 3)

    def events_of(self, kind: str) -> list[Any]:
        return self.run.reader.events_of(kind)


def log(name: str, scenarios: int = 2, **changes: Any) -> LogOutside:
    """Log request with three trajectories per scenario."""
    groups = [
        SentGroup(
            trajectories=[
                SentAttempt(
                    messages_and_choices=[{"role": "user", "content": f"{name} {number}"}],
                    reward=float(index),
                    metadata={"scenario_id": f"s{number}"},
                )
                for index in range(3)
            ]
        )
        for number in range(scenarios)
    ]
    values = {f"{name}/x": 1.0}
    request = LogOutside(
        split="validation", name=name, step=3, groups=groups, values=values, key=f"key of {name}"
    )
    return request.model_copy(update=changes)


def test_concurrent_logs_lose_nothing(run: Run) -> None:
    async def work() -> None:
        await asyncio.gather(engine.log(log("val")), engine.log(log("test")))

    engine = ScriptEngine(run)
    asyncio.run(work())
    assert len(engine.stored) == 12
    assert {one.group for one in engine.stored} == {0, 1, 2, 3}
    prompts = {one.messages[0].content for one in engine.stored}
    assert prompts == {"val 0", "val 1", "test 0", "test 1"}
    assert set(engine.events_of("validation.finished")[-1].scenarios) == {
        "s0",
        "s1",
        "test/s0",
        "test/s1",
    }


def test_repeated_log_is_stored_once(run: Run) -> None:
    async def work() -> None:
        for _ in range(2):
            engine = ScriptEngine(run)
            await engine.log(log("val"))
            await engine.log(log("val"))

    asyncio.run(work())
    engine = ScriptEngine(run)
    assert len(engine.stored) == 6
    kinds = ("trajectory.recorded", "group.scored", "validation.finished", "metrics.logged")
    assert [len(engine.events_of(kind)) for kind in kinds] == [6, 2, 1, 1]


class EngineKilled(BaseException):
    """Simulated death of the engine."""


@pytest.mark.parametrize("survives", range(10))
def test_interrupted_log_is_completed_on_retry(
    run: Run, monkeypatch: pytest.MonkeyPatch, survives: int
) -> None:
    """The engine dies after `survives` events; the script logs something else, then retries."""
    remaining = survives

    async def cut_off() -> None:
        await ScriptEngine(run).log(log("val"))
        raise EngineKilled  # before the response is sent

    async def work() -> None:
        nonlocal remaining
        with monkeypatch.context() as patch:
            write = run.writer._write

            async def until_killed(request: Any) -> BaseEvent:
                nonlocal remaining
                if remaining == 0:
                    raise EngineKilled
                remaining -= 1
                return await write(request)

            patch.setattr(run.writer, "_write", until_killed)
            with pytest.raises(EngineKilled):
                await cut_off()
        engine = ScriptEngine(run)
        await engine.log(log("test"))
        await engine.log(log("val"))

    asyncio.run(work())
    engine = ScriptEngine(run)
    assert len(engine.stored) == len({one.id for one in engine.stored}) == 12
    expected = {"val 0": [0.0, 1.0, 2.0], "val 1": [0.0, 1.0, 2.0]}
    for words, rewards in expected.items():
        group = [one for one in engine.stored if one.messages[0].content == words]
        assert [one.reward for one in group] == rewards
        assert len({one.group for one in group}) == 1
    assert len(engine.events_of("trajectory.recorded")) == 12
    assert len(engine.events_of("group.scored")) == 4
    finished = engine.events_of("validation.finished")[-1]
    assert isinstance(finished, ValidationFinished)
    assert len(finished.scenarios) == 4
    assert [one.split for one in engine.events_of("metrics.logged")].count("val") == 1


def test_torn_line_is_ignored_and_damage_is_reported(run: Run, tmp_path: Path) -> None:
    asyncio.run(ScriptEngine(run).log(log("val")))
    file = run.folder / "logged.jsonl"
    with file.open("a") as file_end:
        file_end.write('{"key": "x')
    assert ScriptEngine(run).logs.get("key of val") is not None
    asyncio.run(ScriptEngine(run).log(log("test")))
    assert ScriptEngine(run).logs.get("key of test") is not None
    file.write_text("{}\n")
    with pytest.raises(StoreError, match="cannot be read"):
        Logs(file)
