"""How a tracker is told of a run that is stored: by a process of which each answer is a word of
ours."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from engine.integrations.trackers import feed
from engine.integrations.trackers.cursor import read_cursor
from engine.integrations.trackers.feed import Feed, Source
from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.tracking import MlflowConfig, TrackConfig
from engine.protocol.events.run import LogWritten, RunFinished, RunStarted, StepFinished
from engine.protocol.records.runs import RunSpec
from engine.runtime.ids import ulid
from engine.server.services.home_requests import HomeLease, HomeRequests
from engine.server.services.library import Library
from engine.server.services.runs.work import ActiveRuns
from engine.server.services.tracking import TrackingService
from engine.storage.run_folder.run import Run, write_spec


class Service:
    """Stands in for every process that a feed starts, and keeps what they were told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.values: list[float] = []
        self.closing = asyncio.Event()
        self.may_close = asyncio.Event()
        self.lost: dict[str, Any] = {"refused": 0, "words": ""}

    async def spawn(self, *_: Any, **__: Any) -> "Process":
        return Process(self)


class Process:
    pid = 0
    alive = True

    def __init__(self, service: Service) -> None:
        self._service = service

    async def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        service = self._service
        service.told.append(op)
        if op == "open":
            return {"seq": None, "url": ""}
        if op == "send":
            service.values += [
                item["values"]["loss"] for item in fields["items"] if "values" in item
            ]
            return {"url": "", **service.lost}
        service.closing.set()
        await service.may_close.wait()
        return {"url": ""}

    async def kill(self) -> None: ...


@pytest.fixture
def run(tmp_path: Path) -> Run:
    track = TrackConfig(mlflow=MlflowConfig(on=True))
    spec = RunSpec(
        id=ulid(), name="amber-kestrel", project="p", started_at=time.time(), model_path="/m",
        config=ProjectConfig(track=track),
    )  # fmt: skip
    folder = tmp_path / "runs" / spec.id
    folder.mkdir(parents=True)
    write_spec(folder, spec)
    return Run(folder, spec, lambda tick: None)


def telling(
    run: Run, monkeypatch: pytest.MonkeyPatch, work: Callable[[Service], Awaitable[None]]
) -> Service:
    async def main() -> Service:
        service = Service()
        monkeypatch.setattr(feed, "Child", service)
        monkeypatch.setattr(feed, "installed_python", lambda name: Path("python"))
        async with asyncio.timeout(20):
            await work(service)
        return service

    try:
        return asyncio.run(main())
    finally:
        run.close()


async def step(run: Run, number: int) -> None:
    await run.say(StepFinished(step=number, metrics={"loss": float(number)}))


def test_a_run_that_goes_on_while_its_end_is_told_is_told_of_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = False

    async def say(level: str, text: str) -> None:
        await run.say(LogWritten(level=level, source="track", text=text))  # type: ignore[arg-type]

    async def work(service: Service) -> None:
        nonlocal living
        await run.say(RunStarted(spec=run.spec))
        await step(run, 1)
        source = Source(run.folder, run.spec, lambda: living, say)
        one = Feed(source, "mlflow", run.config.track.mlflow, {}, set())
        task = asyncio.create_task(one.run())
        await service.closing.wait()
        living = True  # resumed, while the service is told that it has ended
        one.hurry()
        await step(run, 2)
        service.closing.clear()
        service.may_close.set()
        while service.values != [1.0, 2.0]:
            assert not task.done()
            await asyncio.sleep(0)
        living = False
        one.hurry()
        await task

    service = telling(run, monkeypatch, work)
    assert [op for op in service.told if op != "send"] == ["open", "close"] * 2
    cursor = read_cursor(run.folder, "mlflow")
    assert cursor is not None
    assert cursor.seq == 3


def test_a_feed_that_has_just_ended_is_no_feed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its task is done, and nobody has heard of that yet."""
    active = ActiveRuns()
    begun: list[str] = []

    class Brief(Feed):
        async def run(self) -> None:
            self._reader.close()
            begun.append(self.name)
            if len(begun) == 1:  # what is next in the loop comes before those who wait for this
                asyncio.get_running_loop().call_soon(lambda: desk.begin(run.folder, run.spec))

    async def work(service: Service) -> None:
        desk.begin(run.folder, run.spec)
        while desk.busy:  # noqa: ASYNC110 - it ends, or the time does
            await asyncio.sleep(0)

    monkeypatch.setattr("engine.server.services.tracking.Feed", Brief)
    desk = TrackingService(Library(run.folder.parents[1]), active, HomeLease(HomeRequests()))
    telling(run, monkeypatch, work)
    assert begun == ["mlflow", "mlflow"]


def test_what_a_service_never_takes_is_counted_and_said_once(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, str]] = []

    async def say(level: str, text: str) -> None:
        said.append((level, text))

    async def work(service: Service) -> None:
        service.lost = {"refused": 2, "words": "answers 413 Too Large."}
        service.may_close.set()
        await step(run, 1)
        for number in (2, 3):
            source = Source(run.folder, run.spec, lambda: False, say)
            await Feed(source, "mlflow", run.config.track.mlflow, {}, set()).run()
            await step(run, number)

    telling(run, monkeypatch, work)
    words = "MLflow answers 413 Too Large. The rest is uploaded. The run continues."
    assert said == [("warning", words)]
    cursor = read_cursor(run.folder, "mlflow")
    assert cursor is not None
    assert (cursor.refused, cursor.refusal) == (4, "answers 413 Too Large.")


def test_the_end_of_a_run_is_told_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def say(level: str, text: str) -> None: ...

    async def work(service: Service) -> None:
        service.may_close.set()
        await step(run, 1)
        await run.say(RunFinished(step=1, seconds=1.0))
        source = Source(run.folder, run.spec, lambda: False, say)
        await Feed(source, "mlflow", run.config.track.mlflow, {}, set()).run()

    service = telling(run, monkeypatch, work)
    assert service.told == ["open", "send", "close"]
