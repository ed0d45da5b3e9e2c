"""Responsiveness of the window under events.

`python -m tests.bench.flood [SECONDS] [PER_SECOND]`

A studio over a local fake engine that emits PER_SECOND events a second (default 1,000) for SECONDS
(default 30). Prints the longest stall of the GUI thread, and the number of folded events.
"""

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("QT_API", "pyside6")


async def flood(seconds: float, rate: int, app, folder: Path) -> None:  # type: ignore[no-untyped-def]
    from tests.studio.conftest import StallWatch
    from tests.studio.fakes.engine import FakeEngine
    from tests.studio.fakes.simulated_run import Simulation
    from tests.studio.screenshots.pages import open_project, studio_on, wait_for

    simulation = Simulation(run_id="01JD5MAMBERKESTREL00000000")
    simulation.begin()
    simulation.step(1)
    engine = FakeEngine(folder).start()
    engine.add_project("inbox-scout")
    engine.add_run(simulation.made)
    async with studio_on(engine, app, folder) as studio:
        await open_project(studio, engine, "inbox-scout")
        studio.window.show_page("run")
        await asyncio.sleep(2)
        watch = StallWatch()
        watch.start()
        started_at = time.monotonic()
        flood = engine.flood(simulation.made.spec.id, rate, seconds)
        await asyncio.sleep(seconds + 0.5)
        worst = watch.stop()
        flood.join()
        state = studio.session.run.state
        sent = len(engine.runs[simulation.made.spec.id].events)
        await wait_for(lambda: state.seq == sent, 30)
        taken = time.monotonic() - started_at
    engine.stop()
    print(f"{sent} events in {taken:.1f} s, all folded; longest stall {worst * 1000:.0f} ms")


def main() -> None:
    import qasync
    from PySide6.QtWidgets import QApplication

    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    rate = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    app = QApplication([])
    app.setQuitOnLastWindowClosed(False)
    loop = qasync.QEventLoop(app)
    asyncio.set_event_loop(loop)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("CONFIG_HOME", "STATE_HOME", "CACHE_HOME", "RUNTIME_DIR"):
            os.environ[f"XDG_{name}"] = folder
        loop.run_until_complete(flood(seconds, rate, app, Path(folder)))


if __name__ == "__main__":
    main()
