"""Time until the window shows a million events.

`python -m tests.bench.follow [COUNT] [REMOTE]`

An offscreen studio on the Run page opens a run of COUNT (1,000,000) events that it has never seen.
First from the run's own engine; then from a home engine with an empty mirror, which is filled
meanwhile from a remote engine, all on this machine. Prints the time until all events are folded
(and stored), the longest stall of the GUI thread, its most CPU time in one round, and the studio's
total CPU time. The workspace REMOTE keeps the run for the next time.
"""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("QT_API", "pyside6")

import psutil
import qasync
from PySide6.QtWidgets import QApplication

from engine.remote.mirror.pages import last_seq
from engine.storage.samples import create_project
from studio.app import Studio
from tests.bench.far_run import RUN, make_far_run
from tests.studio.conftest import StallWatch


async def follow(app: QApplication, workspace: Path, scratch: Path, words: str) -> None:
    """Measure from the moment that the project is open; a running engine is used."""
    studio = Studio(app, str(workspace), scratch / "studio.toml")
    studio.window.resize(1440, 900)
    studio.start(str(workspace / "bench"))
    watch = StallWatch()
    try:
        await until(lambda: studio.session.connected, 120)
        await until(lambda: studio.session.project.view is not None, 60)
        used = psutil.Process().cpu_times()
        started_at, cpu = time.perf_counter(), used.user + used.system
        studio.window.show_page("run")
        watch.start()
        await until(lambda: studio.session.run.state.status == "finished", 600)
        taken = time.perf_counter() - started_at
        await asyncio.sleep(1)
        used, state = psutil.Process().cpu_times(), studio.session.run.state
        print(
            f"{words}: {state.seq} events in {taken:.1f} s; longest stall "
            f"{watch.stop() * 1000:.0f} ms, most work in one {watch.most_work_s * 1000:.0f} ms; "
            f"studio {used.user + used.system - cpu:.1f} s of CPU, "
            f"{psutil.Process().memory_info().rss / 1e6:.0f} MB; "
            f"{state.trajectories} attempts, {len(state.steps)} steps"
        )
    finally:
        studio.window.close()
        for page in studio.pages.values():
            await page.close_tasks()
        await studio.link.shut_down()
        await studio.close()


@contextlib.contextmanager
def mirror_engine(far: Path, home: Path) -> Iterator[None]:
    """Run a home engine that fills an empty mirror from a remote engine in a process of its own.

    Stop both afterwards.
    """
    folder = home / "bench" / "runs" / RUN
    create_project(home / "bench", "hello")
    folder.mkdir(parents=True)
    shutil.copy(far / "bench" / "runs" / RUN / "run.json", folder)
    argv = [sys.executable, "-m", "tests.bench.mirror_engine", str(far), str(home)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as output:
        output.readline()
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


async def until(check: object, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not check():  # type: ignore[operator]
        if time.monotonic() > end:
            raise TimeoutError("timeout")
        await asyncio.sleep(0.02)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as scratch:
        workspace = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(scratch) / "far"
        if not (workspace / "bench" / "runs" / RUN).exists():
            workspace.mkdir(parents=True, exist_ok=True)
            make_far_run(workspace, count)
        for name in ("CONFIG_HOME", "STATE_HOME", "RUNTIME_DIR"):
            os.environ[f"XDG_{name}"] = scratch
        app = QApplication([])
        app.setQuitOnLastWindowClosed(False)
        loop = qasync.QEventLoop(app)
        asyncio.set_event_loop(loop)
        place = Path(scratch)
        loop.run_until_complete(follow(app, workspace, place, "out of its own engine"))
        home = place / "home"
        with mirror_engine(workspace, home):
            loop.run_until_complete(follow(app, home, place, "while a replica is filled"))
        far, copy = (one / "bench" / "runs" / RUN / "run.db" for one in (workspace, home))
        print(f"{last_seq(copy)} of {last_seq(far)} events are stored at home")
        loop.close()


if __name__ == "__main__":
    main()
