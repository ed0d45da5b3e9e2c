"""Remote run over an unreliable network: faults of every kind, then a long outage.

`python -m tests.bench.tunnel [--aborts 50] [--cut 600]`

Prints the events that arrived, their order, the time until reconnection, and whether the run was
affected: real SSH, a real engine on each side, a tiny model, a fault proxy between them.
"""

import argparse
import asyncio
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw

from engine.client import EngineClient
from engine.protocol.records.runs import ACTIVE_STATES, RunSummary
from engine.protocol.requests.remote import ActOnHost, AddHost, HostSpec, HostView
from engine.protocol.requests.runs import Command, StartRun
from engine.remote.mirror.record import read_record
from tests.engine_http.conftest import make_project, start_engine, stop_engine
from tests.support.fault_proxy import FaultProxy
from tests.support.remote_engine import NAME, authorize_user, link_engine
from tests.support.ssh_server import FarSide, Keys
from tests.support.tiny_model import make_tiny_model

HELD_S = 0.6
"""Duration of a black hole, a delay, or byte-wise transfer."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aborts", type=int, default=50)
    parser.add_argument("--cut", type=float, default=0.0, help="seconds without any way there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        return measure(Path(scratch), arguments.aborts, arguments.cut)


def measure(folder: Path, aborts: int, cut_s: float) -> int:
    """Return 0 if every event arrived once and in order."""
    (folder / "keys").mkdir()
    far = FarSide(folder / "far", Keys(folder / "keys")).start()
    link_engine(far.home / ".atelier-engine")
    for name in ("CONFIG", "DATA", "STATE", "RUNTIME"):
        place = folder / "xdg" / name.lower()
        place.mkdir(parents=True, mode=0o700)
        os.environ[f"XDG_{name}_{'DIR' if name == 'RUNTIME' else 'HOME'}"] = str(place)
    os.environ["HOME"] = str(folder / "person")
    model = make_tiny_model(folder / "model")
    project = make_project(folder / "workspace" / "letters", model)
    with FaultProxy(far.port) as proxy:
        authorize_user(folder / "person", far)
        known = folder / "person" / ".ssh" / "known_hosts"
        known.write_text(far.known().replace(str(far.port), str(proxy.port)))
        home = start_engine(folder / "workspace")
        try:
            client = EngineClient(home.port, home.token)
            return asyncio.run(Trial(client, proxy, far, project).run(aborts, cut_s))
        finally:
            stop_engine(home)
            far.stop()


class Trial:
    def __init__(
        self, client: EngineClient, proxy: FaultProxy, far: FarSide, project: Path
    ) -> None:
        self.client, self.proxy, self.far, self.project = client, proxy, far, project
        self.back_s: list[float] = []

    async def run(self, aborts: int, cut_s: float) -> int:
        async with self.client:
            spec = HostSpec(name=NAME, address=f"trainer@127.0.0.1:{self.proxy.port}")
            await self.client.add_host(AddHost(spec=spec))
            await self.connect()
            request = StartRun(
                project=str(self.project), host=NAME, overrides={"train.steps": 100_000}
            )
            run = await self.client.start_run(request)
            await self.abort(aborts)
            if cut_s:
                await self.cut(run, cut_s)
            stop = Command(action="stop_after_step", key="end")
            await self.connect()
            await self.client.command(run.id, stop)
            await self.until(lambda: self.has_ended(run))
            await self.until(self.is_caught_up)
            wrong = self.compare(run)
            await self.client.act_on_host(NAME, ActOnHost(action="stop_engine"))
            await asyncio.sleep(2)
            return wrong

    async def abort(self, aborts: int) -> None:
        faults = {
            "reset": self.proxy.reset,
            "closed": self.proxy.drop,
            "half closed": self.proxy.half_close,
            "server gone": self.far.drop,
            "black hole": self.black_hole,
            "delay": self.delay,
            "one byte at a time": self.dribble,
        }
        for number, (name, fault) in zip(range(aborts), itertools.cycle(faults.items())):
            await asyncio.sleep(0.3)
            await asyncio.to_thread(fault)
            started_at = time.monotonic()
            if name not in ("delay", "one byte at a time", "black hole"):
                await asyncio.sleep(0.2)
                await self.connect()
                self.back_s.append(time.monotonic() - started_at)
            sys.stdout.write(f"\r{number + 1} of {aborts}: {name:20}")
            sys.stdout.flush()
        sys.stdout.write("\n")

    def black_hole(self) -> None:
        self.proxy.black_hole()
        time.sleep(HELD_S)
        self.proxy.black_hole(False)

    def delay(self) -> None:
        self.proxy.delay_s = 0.05
        time.sleep(HELD_S)
        self.proxy.delay_s = 0.0

    def dribble(self) -> None:
        self.proxy.one_byte = True
        time.sleep(HELD_S)
        self.proxy.one_byte = False

    async def cut(self, run: RunSummary, seconds: float) -> None:
        before = self.last_event(Path(run.path))
        was = (await self.client.run(run.id)).step
        self.proxy.cut(seconds)
        started_at = time.monotonic()
        await asyncio.sleep(seconds)
        await self.until(self.is_connected)
        back = time.monotonic() - started_at - seconds
        remote_seq = self.last_event(self.remote_folder(run))
        await self.until(lambda: self.has(run, remote_seq))
        caught = time.monotonic() - started_at - seconds
        steps = (await self.client.run(run.id)).step - was
        sys.stdout.write(
            f"cut for {seconds:.0f} s: {steps} steps and {remote_seq - before} events meanwhile; "
            f"connected by itself after {back:.1f} s more, everything here after {caught:.1f} s\n"
        )

    def remote_folder(self, run: RunSummary) -> Path:
        """Return the run's folder on the server."""
        record = read_record(Path(run.path))
        assert record is not None
        base = self.far.home / ".atelier-engine" / "workspace"
        return base / record.folder / "runs" / run.id

    def last_event(self, folder: Path) -> int:
        file = str(folder / "run.db")
        db = apsw.Connection(file, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return int(db.execute("SELECT max(seq) FROM events").get)
        finally:
            db.close()

    async def has(self, run: RunSummary, seq: int) -> bool:
        return await asyncio.to_thread(self.last_event, Path(run.path)) >= seq

    async def connect(self) -> None:
        await self.client.act_on_host(NAME, ActOnHost(action="connect"))
        await self.until(self.is_connected)

    async def until(self, done: Callable[[], Awaitable[bool]]) -> None:
        while not await done():  # noqa: ASYNC110 - the other process is polled
            await asyncio.sleep(0.05)

    async def is_connected(self) -> bool:
        return (await self.view()).state == "connected"

    async def is_caught_up(self) -> bool:
        view = await self.view()
        return view.state == "connected" and not view.behind

    async def has_ended(self, run: RunSummary) -> bool:
        return (await self.client.run(run.id)).state not in ACTIVE_STATES

    async def view(self) -> HostView:
        return (await self.client.hosts()).hosts[0]

    def compare(self, run: RunSummary) -> int:
        local = Path(run.path)
        remote = self.remote_folder(run)
        ours, theirs = (apsw.Connection(str(one / "run.db")) for one in (local, remote))
        query = "SELECT seq, body FROM events ORDER BY seq"
        events, original = (list(one.execute(query)) for one in (ours, theirs))
        steps = list(
            ours.execute("SELECT body ->> '$.step' FROM events WHERE kind = 'step.finished'")
        )
        attempts = "SELECT id, body FROM trajectories ORDER BY number"
        same = events == original and list(ours.execute(attempts)) == list(theirs.execute(attempts))
        in_order = [seq for seq, _ in events] == list(range(1, len(events) + 1))
        repeated = len(steps) - len(set(steps))
        restarts = ours.execute(
            "SELECT count(*) FROM events WHERE kind IN ('worker.restarted', 'run.failed')"
        ).get
        sys.stdout.write(
            f"{len(events)} events, {len(steps)} steps: every event once and in order: {in_order}; "
            f"equal to the server's, attempts and all: {same}; steps repeated: {repeated}; "
            f"restarts: {restarts}\n"
        )
        if self.back_s:
            sys.stdout.write(
                f"connected again after {statistics.median(self.back_s):.2f} s (median), "
                f"{max(self.back_s):.2f} s at most, of {len(self.back_s)} losses\n"
            )
        return int(not (same and in_order) or repeated > 0)


if __name__ == "__main__":
    sys.exit(main())
