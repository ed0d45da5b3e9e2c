"""Feed of a stored run to a tracker, with a stub in place of the tracker process."""

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


class TrackerStub:
    """Stub for every process that a feed starts; records the requests."""

    def __init__(self) -> None:
        self.operations: list[str] = []
        self.values: list[float] = []
        self.closing = asyncio.Event()
        self.may_close = asyncio.Event()
        self.lost: dict[str, Any] = {"refused": 0, "words": ""}

    async def spawn(self, *_: Any, **__: Any) -> "StubProcess":
        return StubProcess(self)


class StubProcess:
    pid = 0
    alive = True

    def __init__(self, service: TrackerStub) -> None:
        self._service = service

    async def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        service = self._service
        service.operations.append(op)
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


def run_feed(
    run: Run, monkeypatch: pytest.MonkeyPatch, work: Callable[[TrackerStub], Awaitable[None]]
) -> TrackerStub:
    async def main() -> TrackerStub:
        service = TrackerStub()
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


def test_run_resumed_while_closing_is_uploaded_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_running = False

    async def say(level: str, text: str) -> None:
        await run.say(LogWritten(level=level, source="track", text=text))  # type: ignore[arg-type]

    async def work(service: TrackerStub) -> None:
        nonlocal is_running
        await run.say(RunStarted(spec=run.spec))
        await step(run, 1)
        source = Source(run.folder, run.spec, lambda: is_running, say)
        one = Feed(source, "mlflow", run.config.track.mlflow, {}, set())
        task = asyncio.create_task(one.run())
        await service.closing.wait()
        is_running = True  # resumed while the tracker is closed
        one.hurry()
        await step(run, 2)
        service.closing.clear()
        service.may_close.set()
        while service.values != [1.0, 2.0]:
            assert not task.done()
            await asyncio.sleep(0)
        is_running = False
        one.hurry()
        await task

    service = run_feed(run, monkeypatch, work)
    assert [op for op in service.operations if op != "send"] == ["open", "close"] * 2
    cursor = read_cursor(run.folder, "mlflow")
    assert cursor is not None
    assert cursor.seq == 3


def test_ended_feed_is_replaced_by_a_new_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task of the feed is done, but the service has not noticed yet."""
    active = ActiveRuns()
    started: list[str] = []

    class EndingFeed(Feed):
        async def run(self) -> None:
            self._reader.close()
            started.append(self.name)
            if len(started) == 1:  # runs before those who wait for this task
                asyncio.get_running_loop().call_soon(lambda: tracking.begin(run.folder, run.spec))

    async def work(service: TrackerStub) -> None:
        tracking.begin(run.folder, run.spec)
        while tracking.busy:  # noqa: ASYNC110 - it ends, or the time does
            await asyncio.sleep(0)

    monkeypatch.setattr("engine.server.services.tracking.Feed", EndingFeed)
    tracking = TrackingService(Library(run.folder.parents[1]), active, HomeLease(HomeRequests()))
    run_feed(run, monkeypatch, work)
    assert started == ["mlflow", "mlflow"]


def test_rejected_items_are_counted_and_reported_once(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[tuple[str, str]] = []

    async def say(level: str, text: str) -> None:
        messages.append((level, text))

    async def work(service: TrackerStub) -> None:
        service.lost = {"refused": 2, "words": "answers 413 Too Large."}
        service.may_close.set()
        await step(run, 1)
        for number in (2, 3):
            source = Source(run.folder, run.spec, lambda: False, say)
            await Feed(source, "mlflow", run.config.track.mlflow, {}, set()).run()
            await step(run, number)

    run_feed(run, monkeypatch, work)
    words = "MLflow answers 413 Too Large. The rest is uploaded. The run continues."
    assert messages == [("warning", words)]
    cursor = read_cursor(run.folder, "mlflow")
    assert cursor is not None
    assert (cursor.refused, cursor.refusal) == (4, "answers 413 Too Large.")


def test_end_of_a_run_is_sent_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def say(level: str, text: str) -> None: ...

    async def work(service: TrackerStub) -> None:
        service.may_close.set()
        await step(run, 1)
        await run.say(RunFinished(step=1, seconds=1.0))
        source = Source(run.folder, run.spec, lambda: False, say)
        await Feed(source, "mlflow", run.config.track.mlflow, {}, set()).run()

    service = run_feed(run, monkeypatch, work)
    assert service.operations == ["open", "send", "close"]
