"""A replica over a real engine's routes: whatever breaks on the way, nothing is lost or doubled."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import httpx
import pytest
import uvicorn

from engine.client import EngineClient
from engine.protocol.events.run import LogWritten, ProgressTicked
from engine.protocol.problems import LaunchError, Refused
from engine.protocol.records.runs import RunSpec
from engine.remote.mirror.mirror import Mirror
from engine.remote.mirror.replica import Replica
from engine.server.app import make_app
from engine.server.composition import Services
from engine.storage.project import load_config
from engine.storage.run_db.writer import RunWriter
from engine.storage.run_folder.run import DATABASE, write_spec
from engine.storage.samples import create_project
from tests.engine.remote.mirror.fault_proxy import FaultProxy
from tests.engine.remote.mirror.story import Story, contents

RUN, TOKEN = "01JD5MIRROR000000000000000", "t" * 43


@dataclass
class Far:
    """An engine's routes over a workspace with one run, and the way there."""

    services: Services
    writer: RunWriter
    file: Path
    proxy: FaultProxy

    def client(self) -> EngineClient:
        return EngineClient(self.proxy.port, TOKEN)


@asynccontextmanager
async def far_engine(folder: Path, most: int = 0) -> AsyncIterator[Far]:
    create_project(folder / "p", "hello")
    run = folder / "p" / "runs" / RUN
    run.mkdir(parents=True)
    config = load_config(folder / "p")
    write_spec(run, RunSpec(
        id=RUN, name="far", project="p", started_at=time.time(), config=config, model_path="/m"
    ))  # fmt: skip
    async with FaultProxy(Random(5)) as proxy:
        services = Services(folder, TOKEN, proxy.port)
        broadcast = services.broadcast
        writer = RunWriter(run / DATABASE, RUN, lambda: broadcast.announce(RUN, None))
        app = make_app(services, proxy.port)
        config = uvicorn.Config(app, port=0, log_level="error", lifespan="off")
        served = uvicorn.Server(config)
        serving = asyncio.create_task(served.serve())
        await until(lambda: served.started)
        proxy.target = served.servers[0].sockets[0].getsockname()[1]
        proxy.most = most
        try:
            yield Far(services, writer, run / DATABASE, proxy)
        finally:
            broadcast.close()
            served.should_exit = served.force_exit = True
            await serving
            await asyncio.to_thread(writer.close)


async def until(check: object, seconds: float = 15.0) -> None:
    async with asyncio.timeout(seconds):
        while not check():  # type: ignore[operator]  # noqa: ASYNC110
            await asyncio.sleep(0.005)


MOST_BEHIND = 100
"""Events; a page of more is larger than what comes between two cuts."""


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    (tmp_path / "home").mkdir()
    return Replica(tmp_path / "home", RUN)


def test_cut_off_at_any_byte(tmp_path: Path, replica: Replica) -> None:
    """The run goes on all the while; each time the copy goes on from what it has."""
    stored: list[int] = []

    async def work() -> Path:
        story = Story(Random(2))
        async with far_engine(tmp_path / "far", most=150_000) as far:
            while far.proxy.cut < 60:
                async with far.client() as client:
                    mirror = Mirror(client, RUN, replica, lambda _: stored.append(replica.seq))
                    task = asyncio.create_task(mirror.run())
                    while not task.done():
                        await story.go_on(far.writer, 2)
                        if far.writer.seq - replica.seq > MOST_BEHIND:  # a quick disk runs away
                            await asyncio.sleep(0.005)
                    with pytest.raises(LaunchError):
                        await task
            far.proxy.most = 0
            async with far.client() as client:
                mirror = Mirror(client, RUN, replica, lambda _: stored.append(replica.seq))
                task = asyncio.create_task(mirror.run())
                await until(lambda: replica.seq == far.writer.seq)
                assert mirror.behind == 0
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            assert len(stored) > 20
            return far.file

    file = asyncio.run(work())
    replica.close()
    assert stored == sorted(set(stored))
    assert contents(tmp_path / "home" / DATABASE) == contents(file)


def test_what_happens_is_here_at_once_and_in_few_pages(tmp_path: Path, replica: Replica) -> None:
    told: list[object] = []

    async def work() -> None:
        async with far_engine(tmp_path / "far") as far, far.client() as client:
            mirror = asyncio.create_task(Mirror(client, RUN, replica, told.append).run())
            begun = time.monotonic()
            while time.monotonic() - begun < 1.5:
                await far.writer.say(LogWritten(level="info", source="t", text="x"))
            await until(lambda: replica.seq == far.writer.seq)
            pages, seconds = told.count(None), time.monotonic() - begun
            assert pages <= 34 * seconds
            tick = ProgressTicked(run_id=RUN, step=1, phase="training", done=1, total=2)
            far.services.broadcast.announce(RUN, tick)
            await until(lambda: tick in told, 2)
            mirror.cancel()
            await asyncio.gather(mirror, return_exceptions=True)

    asyncio.run(work())
    replica.close()


def test_a_question_waits_for_what_comes(tmp_path: Path) -> None:
    async def work() -> None:
        async with far_engine(tmp_path / "far") as far, far.client() as client:
            begun = time.monotonic()
            nothing = await client.changes(RUN, 0, 0.2)
            assert (nothing.page, nothing.last, nothing.known) == (b"", 0, 0)
            assert time.monotonic() - begun >= 0.2
            waiting = asyncio.create_task(client.changes(RUN, 0, 10))
            await asyncio.sleep(0.05)
            for _ in range(3):
                await far.writer.say(LogWritten(level="info", source="t", text="x"))
            changes = await waiting
            assert changes.page
            assert 1 <= changes.last <= changes.known <= 3
            assert (await client.changes(RUN, 3)).known == 3

    asyncio.run(work())


def test_what_cannot_be_answered_is_said(tmp_path: Path) -> None:
    async def work() -> None:
        async with far_engine(tmp_path / "far") as far, far.client() as client:
            with pytest.raises(Refused, match="There is no run nothing"):
                await client.changes("nothing", 0)
            with pytest.raises(Refused, match="There is no run nothing"):
                await anext(client.ticks("nothing"))
            for query in ("after=-1", "after=x", "after=nan", "wait=soon"):
                answer = await client._http.get(f"/runs/{RUN}/changes?{query}")
                assert answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY
                assert "is not a number" in answer.json()["message"]

    asyncio.run(work())


def test_a_mirror_without_an_engine_says_so(replica: Replica) -> None:
    async def work() -> None:
        async with EngineClient(9, TOKEN) as client:
            with pytest.raises(LaunchError):
                await Mirror(client, RUN, replica, lambda _: None).run()

    asyncio.run(work())
    replica.close()


def test_one_that_is_stopped_while_it_stores_leaves_a_whole_copy(
    tmp_path: Path, replica: Replica
) -> None:
    async def work() -> Path:
        async with far_engine(tmp_path / "far") as far, far.client() as client:
            await Story(Random(4)).go_on(far.writer, 300)
            for pause in (0.0, 0.01, 0.02, 0.03):
                task = asyncio.create_task(Mirror(client, RUN, replica, lambda _: None).run())
                await asyncio.sleep(pause)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            task = asyncio.create_task(Mirror(client, RUN, replica, lambda _: None).run())
            await until(lambda: replica.seq == far.writer.seq)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return far.file

    file = asyncio.run(work())
    replica.close()
    assert contents(tmp_path / "home" / DATABASE) == contents(file)
