"""Mirror of a run over a real engine's routes: connection faults lose and duplicate nothing."""

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
from tests.engine.remote.mirror.story import RunSimulator, contents

RUN, TOKEN = "01JD5MIRROR000000000000000", "t" * 43


@dataclass
class RemoteEngine:
    """Engine routes over a workspace with one run, and the proxy in front of them."""

    services: Services
    writer: RunWriter
    file: Path
    proxy: FaultProxy

    def client(self) -> EngineClient:
        return EngineClient(self.proxy.port, TOKEN)


@asynccontextmanager
async def remote_engine(folder: Path, most: int = 0) -> AsyncIterator[RemoteEngine]:
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
        uvicorn_server = uvicorn.Server(config)
        serving = asyncio.create_task(uvicorn_server.serve())
        await until(lambda: uvicorn_server.started)
        proxy.target = uvicorn_server.servers[0].sockets[0].getsockname()[1]
        proxy.most = most
        try:
            yield RemoteEngine(services, writer, run / DATABASE, proxy)
        finally:
            broadcast.close()
            uvicorn_server.should_exit = uvicorn_server.force_exit = True
            await serving
            await asyncio.to_thread(writer.close)


async def until(check: object, seconds: float = 15.0) -> None:
    async with asyncio.timeout(seconds):
        while not check():  # type: ignore[operator]  # noqa: ASYNC110
            await asyncio.sleep(0.005)


MOST_BEHIND = 100
"""Maximum lag in events; a page of more is larger than what arrives between two cuts."""


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    (tmp_path / "home").mkdir()
    return Replica(tmp_path / "home", RUN)


def test_mirror_resumes_after_cuts_at_any_byte(tmp_path: Path, replica: Replica) -> None:
    """The run continues meanwhile; after each cut the mirror resumes from what it has."""
    stored: list[int] = []

    async def work() -> Path:
        simulator = RunSimulator(Random(2))
        async with remote_engine(tmp_path / "far", most=150_000) as remote:
            while remote.proxy.cut < 60:
                async with remote.client() as client:
                    mirror = Mirror(client, RUN, replica, lambda _: stored.append(replica.seq))
                    task = asyncio.create_task(mirror.run())
                    while not task.done():
                        await simulator.perform(remote.writer, 2)
                        if (
                            remote.writer.seq - replica.seq > MOST_BEHIND
                        ):  # a fast disk gets too far ahead
                            await asyncio.sleep(0.005)
                    with pytest.raises(LaunchError):
                        await task
            remote.proxy.most = 0
            async with remote.client() as client:
                mirror = Mirror(client, RUN, replica, lambda _: stored.append(replica.seq))
                task = asyncio.create_task(mirror.run())
                await until(lambda: replica.seq == remote.writer.seq)
                assert mirror.behind == 0
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            assert len(stored) > 20
            return remote.file

    file = asyncio.run(work())
    replica.close()
    assert stored == sorted(set(stored))
    assert contents(tmp_path / "home" / DATABASE) == contents(file)


def test_changes_arrive_at_once_in_few_pages(tmp_path: Path, replica: Replica) -> None:
    received: list[object] = []

    async def work() -> None:
        async with remote_engine(tmp_path / "far") as remote, remote.client() as client:
            mirror = asyncio.create_task(Mirror(client, RUN, replica, received.append).run())
            start = time.monotonic()
            while time.monotonic() - start < 1.5:
                await remote.writer.say(LogWritten(level="info", source="t", text="x"))
            await until(lambda: replica.seq == remote.writer.seq)
            pages, seconds = received.count(None), time.monotonic() - start
            assert pages <= 34 * seconds
            tick = ProgressTicked(run_id=RUN, step=1, phase="training", done=1, total=2)
            remote.services.broadcast.announce(RUN, tick)
            await until(lambda: tick in received, 2)
            mirror.cancel()
            await asyncio.gather(mirror, return_exceptions=True)

    asyncio.run(work())
    replica.close()


def test_changes_request_waits_for_new_events(tmp_path: Path) -> None:
    async def work() -> None:
        async with remote_engine(tmp_path / "far") as remote, remote.client() as client:
            start = time.monotonic()
            empty = await client.changes(RUN, 0, 0.2)
            assert (empty.page, empty.last, empty.known) == (b"", 0, 0)
            assert time.monotonic() - start >= 0.2
            waiting = asyncio.create_task(client.changes(RUN, 0, 10))
            await asyncio.sleep(0.05)
            for _ in range(3):
                await remote.writer.say(LogWritten(level="info", source="t", text="x"))
            changes = await waiting
            assert changes.page
            assert 1 <= changes.last <= changes.known <= 3
            assert (await client.changes(RUN, 3)).known == 3

    asyncio.run(work())


def test_unknown_runs_and_bad_parameters_are_rejected(tmp_path: Path) -> None:
    async def work() -> None:
        async with remote_engine(tmp_path / "far") as remote, remote.client() as client:
            with pytest.raises(Refused, match="There is no run nothing"):
                await client.changes("nothing", 0)
            with pytest.raises(Refused, match="There is no run nothing"):
                await anext(client.ticks("nothing"))
            for query in ("after=-1", "after=x", "after=nan", "wait=soon"):
                answer = await client._http.get(f"/runs/{RUN}/changes?{query}")
                assert answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY
                assert "is not a number" in answer.json()["message"]

    asyncio.run(work())


def test_mirror_without_an_engine_raises_launch_error(replica: Replica) -> None:
    async def work() -> None:
        async with EngineClient(9, TOKEN) as client:
            with pytest.raises(LaunchError):
                await Mirror(client, RUN, replica, lambda _: None).run()

    asyncio.run(work())
    replica.close()


def test_mirror_cancelled_while_storing_leaves_a_consistent_copy(
    tmp_path: Path, replica: Replica
) -> None:
    async def work() -> Path:
        async with remote_engine(tmp_path / "far") as remote, remote.client() as client:
            await RunSimulator(Random(4)).perform(remote.writer, 300)
            for pause in (0.0, 0.01, 0.02, 0.03):
                task = asyncio.create_task(Mirror(client, RUN, replica, lambda _: None).run())
                await asyncio.sleep(pause)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            task = asyncio.create_task(Mirror(client, RUN, replica, lambda _: None).run())
            await until(lambda: replica.seq == remote.writer.seq)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return remote.file

    file = asyncio.run(work())
    replica.close()
    assert contents(tmp_path / "home" / DATABASE) == contents(file)
