"""Time to catch up with a remote run after a disconnection.

`python -m tests.bench.replica [COUNT] [REMOTE]`

A remote engine in a process of its own with COUNT (1,000,000) events; prints how long the remote
side takes to read and compress them, how long the replica takes to store them, and the time from
the first request to the last commit. The workspace REMOTE keeps the run for the next time.
"""

import asyncio
import sys
import tempfile
import time
import zlib
from pathlib import Path

import psutil

from engine.client import EngineClient
from engine.launcher import local
from engine.remote.mirror.mirror import Mirror
from engine.remote.mirror.pages import read_page
from engine.remote.mirror.replica import Replica
from engine.storage.run_folder.run import DATABASE
from tests.bench.far_run import RUN, make_far_run

ALONE = 12
"""Number of pages for measuring each side separately."""


def measure_alone(far: Path, home: Path) -> None:
    home.mkdir()
    replica = Replica(home, RUN)
    read_s = store_s = unpack_s = 0.0
    packed = unpacked = 0
    for _ in range(ALONE):
        started_at = time.perf_counter()
        page = read_page(far, RUN, replica.seq)
        read_s += time.perf_counter() - started_at
        if page is None:
            break
        started_at = time.perf_counter()
        unpacked += len(zlib.decompress(page.content))
        unpack_s += time.perf_counter() - started_at
        started_at = time.perf_counter()
        replica.apply(page.content)
        store_s += time.perf_counter() - started_at
        packed += len(page.content)
    each = 1e6 / replica.seq
    print(
        f"alone, a million events: read and pack {read_s * each:.1f} s, "
        f"store {store_s * each:.1f} s (of that unpack {unpack_s * each:.1f} s); "
        f"{unpacked * each / 1e6:.0f} MB, packed {packed * each / 1e6:.0f} MB, "
        f"{each * packed * 8 / 1e7:.0f} s at 10 Mbit/s"
    )
    replica.close()


async def measure_together(workspace: Path, home: Path) -> None:
    home.mkdir()
    endpoint = await local.find_or_start(workspace, sys.executable)
    replica = Replica(home, RUN)
    started_at, cpu = time.monotonic(), psutil.Process().cpu_times()
    async with EngineClient(endpoint.port, endpoint.token) as client:
        mirror = Mirror(client, RUN, replica, lambda _: None)
        task = asyncio.create_task(mirror.run())
        while (await asyncio.sleep(0.05)) or not mirror.known or mirror.behind:
            if task.done():
                task.result()
        taken, now = time.monotonic() - started_at, psutil.Process().cpu_times()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.shut_down()
    print(
        f"{replica.seq} events over loopback: {taken:.1f} s; at home "
        f"{now.user + now.system - cpu.user - cpu.system:.1f} s of CPU"
    )
    replica.close()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as scratch:
        workspace = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(scratch) / "far"
        far = workspace / "bench" / "runs" / RUN / DATABASE
        if not far.exists():
            workspace.mkdir(parents=True, exist_ok=True)
            started_at = time.monotonic()
            make_far_run(workspace, count)
            print(
                f"{far.stat().st_size / 1e6:.0f} MB made in {time.monotonic() - started_at:.0f} s"
            )
        measure_alone(far, Path(scratch) / "alone")
        asyncio.run(measure_together(workspace, Path(scratch) / "home"))


if __name__ == "__main__":
    main()
