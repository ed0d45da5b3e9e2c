"""What a script logs is stored whole and once, also where two logs come at once, or one twice."""

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
"""Nothing here was sampled by a policy, so nothing is put into pieces."""


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


class Desk:
    """What an engine knows of a script; another one reads it from the same files."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.known = Completions(run.folder / "completions.jsonl")
        self.logs = Logs(run.folder / "logged.jsonl")

    async def log(self, asked: LogOutside) -> None:
        await store_logged(self.run, asked, self.logs, self.known, CHAT)

    @property
    def stored(self) -> list[Trajectory]:
        return self.run.reader.stored("validation", 3)

    def said(self, kind: str) -> list[Any]:
        return self.run.reader.events_of(kind)


def log(name: str, scenarios: int = 2, **changes: Any) -> LogOutside:
    """Three attempts at each scenario."""
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
    asked = LogOutside(
        split="validation", name=name, step=3, groups=groups, values=values, key=f"key of {name}"
    )
    return asked.model_copy(update=changes)


def test_two_at_once_lose_nothing(run: Run) -> None:
    async def work() -> None:
        await asyncio.gather(desk.log(log("val")), desk.log(log("test")))

    desk = Desk(run)
    asyncio.run(work())
    assert len(desk.stored) == 12
    assert {one.group for one in desk.stored} == {0, 1, 2, 3}
    said = {one.messages[0].content for one in desk.stored}
    assert said == {"val 0", "val 1", "test 0", "test 1"}
    assert set(desk.said("validation.finished")[-1].scenarios) == {"s0", "s1", "test/s0", "test/s1"}


def test_one_that_comes_again_is_stored_once(run: Run) -> None:
    async def work() -> None:
        for _ in range(2):
            desk = Desk(run)
            await desk.log(log("val"))
            await desk.log(log("val"))

    asyncio.run(work())
    desk = Desk(run)
    assert len(desk.stored) == 6
    kinds = ("trajectory.recorded", "group.scored", "validation.finished", "metrics.logged")
    assert [len(desk.said(kind)) for kind in kinds] == [6, 2, 1, 1]


class Killed(BaseException):
    """The engine, in the middle of it."""


@pytest.mark.parametrize("survives", range(10))
def test_one_that_was_cut_off_is_gone_on_with(
    run: Run, monkeypatch: pytest.MonkeyPatch, survives: int
) -> None:
    """After so many events; the script logs something else first, and then this again."""
    left = survives

    async def cut_off() -> None:
        await Desk(run).log(log("val"))
        raise Killed  # before it has answered

    async def work() -> None:
        nonlocal left
        with monkeypatch.context() as patch:
            write = run.writer._write

            async def until_killed(asked: Any) -> BaseEvent:
                nonlocal left
                if left == 0:
                    raise Killed
                left -= 1
                return await write(asked)

            patch.setattr(run.writer, "_write", until_killed)
            with pytest.raises(Killed):
                await cut_off()
        desk = Desk(run)
        await desk.log(log("test"))
        await desk.log(log("val"))

    asyncio.run(work())
    desk = Desk(run)
    assert len(desk.stored) == len({one.id for one in desk.stored}) == 12
    wanted = {"val 0": [0.0, 1.0, 2.0], "val 1": [0.0, 1.0, 2.0]}
    for words, rewards in wanted.items():
        found = [one for one in desk.stored if one.messages[0].content == words]
        assert [one.reward for one in found] == rewards
        assert len({one.group for one in found}) == 1
    assert len(desk.said("trajectory.recorded")) == 12
    assert len(desk.said("group.scored")) == 4
    finished = desk.said("validation.finished")[-1]
    assert isinstance(finished, ValidationFinished)
    assert len(finished.scenarios) == 4
    assert [one.split for one in desk.said("metrics.logged")].count("val") == 1


def test_a_line_that_was_cut_off_was_no_log(run: Run, tmp_path: Path) -> None:
    asyncio.run(Desk(run).log(log("val")))
    file = run.folder / "logged.jsonl"
    with file.open("a") as torn:
        torn.write('{"key": "x')
    assert Desk(run).logs.get("key of val") is not None
    asyncio.run(Desk(run).log(log("test")))
    assert Desk(run).logs.get("key of test") is not None
    file.write_text("{}\n")
    with pytest.raises(StoreError, match="cannot be read"):
        Logs(file)
