"""Runs page with 10,000 runs, and a comparison of eight runs of 2,000 steps.

`python -m tests.bench.runs_page [RUNS] [STEPS]`

A real engine and an offscreen studio. Prints for each interaction the median time in milliseconds
from the input to the painted window (limit 150), and the longest stall of the GUI thread (limit
100) with its CPU time; the rest was waiting for a core.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("QT_API", "pyside6")

import qasync
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from studio.app import Studio
from tests.bench.many_runs import add_long_runs, make_runs
from tests.studio.conftest import StallWatch

REPEATS, LIMIT_MS = 9, 150


async def until(check: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            raise TimeoutError("timeout")
        await asyncio.sleep(0.001)


class Measured:
    """Interactions with the page, and their times."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self.page: Any = studio.pages["runs"]
        self.watch = StallWatch()

    async def time(
        self, name: str, work: Callable[[int], Awaitable[None]], repeats: int = REPEATS
    ) -> None:
        times = []
        self.watch.start()
        for number in range(repeats):
            started_at = time.perf_counter()
            await work(number)
            self.studio.window.repaint()
            times.append(1000 * (time.perf_counter() - started_at))
            await asyncio.sleep(0.3)
        stall = 1000 * self.watch.stop()
        median, work_ms = statistics.median(times), 1000 * self.watch.most_work_s
        words = "ok" if median <= LIMIT_MS and stall <= 100 else "TOO SLOW"
        print(f"  {name:26} {median:5.0f} ms   longest stall {stall:4.0f} ms, "
              f"{work_ms:3.0f} ms of it computing   {words}")  # fmt: skip

    async def loaded(self) -> None:
        """Wait until the rows on screen are loaded."""
        table, model = self.page.table, self.page.model
        await until(lambda: model.is_loaded and not self.page.tasks.busy(model._name))
        top = max(0, table.rowAt(2))
        await until(lambda: not model.total or model.record(top) is not None)

    async def sort(self, number: int) -> None:
        order = Qt.SortOrder.AscendingOrder if number % 2 else Qt.SortOrder.DescendingOrder
        self.page.model.sort(4, order)
        await self.loaded()

    async def search(self, number: int) -> None:
        self.page._ask(search=("fox", "gspo", "amber ant", "")[number % 4])
        await self.loaded()

    async def scroll(self, number: int) -> None:
        bar = self.page.table.verticalScrollBar()
        bar.setValue(bar.maximum() * (number * 37 % 97) // 97)
        await self.loaded()

    async def select(self, number: int) -> None:
        self.page.table.setCurrentIndex(self.page.model.index(number * 3, 1))

    async def filled(self) -> None:
        view = self.page.compare_view
        charts = [chart.card.view for chart in view._charts.values()]
        await until(lambda: not view._filling._left and not view._later.isActive())
        await until(lambda: not any(v._stale and not v.visibleRegion().isEmpty() for v in charts))

    async def axis(self, number: int) -> None:
        self.page.compare_view._axis._choose(number % 3)
        await self.filled()

    async def smoothing(self, number: int) -> None:
        self.page.compare_view.link.set_smoothing(0.05 * (number + 1))
        await self.filled()

    async def zoom(self, number: int) -> None:
        self.page.compare_view.link.set_zoom((100.0 * number, 900.0 + 100 * number))
        await self.filled()

    async def hide(self, number: int) -> None:
        key = list(self.page.compare_view._legend._keys.values())[number % 8]
        key.click()
        await self.filled()

    async def hover(self, number: int) -> None:
        self.page.compare_view.link.set_hovered(200 + number)


async def work(
    app: QApplication, workspace: Path, project: Path, long_runs: list[str], steps: int
) -> None:
    studio = Studio(app, str(workspace), workspace / "studio.toml")
    studio.window.resize(1440, 900)
    studio.start()
    try:
        await until(lambda: studio.session.connected)
        started_at = time.perf_counter()
        studio.session.open_project(str(project), "runs")
        await until(lambda: studio.session.project.view is not None)
        bench = Measured(studio)
        await until(lambda: bench.page.model.total)
        await bench.loaded()
        print(f"newest runs listed after {time.perf_counter() - started_at:.1f} s")
        await until(lambda: not bench.page._page.partial)
        taken = time.perf_counter() - started_at
        print(f"opened with {bench.page.model.total:,} runs in {taken:.1f} s")
        bench.watch.start()
        studio.session.refresh()
        await asyncio.sleep(3)
        print(f"  refresh of the session: longest stall {1000 * bench.watch.stop():.0f} ms")
        await bench.time("sort", bench.sort)
        await bench.time("search", bench.search, 8)
        await bench.time("scroll far", bench.scroll)
        await bench.time("select a row", bench.select)
        bench.watch.start()
        started_at = time.perf_counter()
        bench.page.compare(long_runs)
        states = [studio.session.runs.state(run_id) for run_id in long_runs]
        await until(lambda: all(len(state.steps) >= steps for state in states))
        await bench.filled()
        taken, stall = time.perf_counter() - started_at, 1000 * bench.watch.stop()
        total, work_ms = sum(len(one.steps) for one in states), 1000 * bench.watch.most_work_s
        print(f"compared {total:,} steps of {len(states)} runs in {taken:.1f} s, longest stall "
              f"{stall:.0f} ms, {work_ms:.0f} ms of it computing")  # fmt: skip
        await asyncio.sleep(1)
        for name, work in (
            ("x axis of the charts", bench.axis),
            ("smoothing", bench.smoothing),
            ("zoom", bench.zoom),
            ("hide or show a run", bench.hide),
            ("crosshair", bench.hover),
        ):
            await bench.time(name, work)
    finally:
        studio.window.close()
        for page in studio.pages.built.values():
            await page.close_tasks()
        await studio.link.shut_down()
        await studio.close()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    with tempfile.TemporaryDirectory() as folder:
        for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_DATA_HOME"):
            os.environ[name] = folder
        Path(folder).chmod(0o700)
        workspace = Path(folder) / "workspace"
        project = make_runs(workspace / "many", count)
        long_runs = add_long_runs(project, steps=steps)
        print("runs made", flush=True)
        app = QApplication(sys.argv[:1])
        app.setQuitOnLastWindowClosed(False)
        loop = qasync.QEventLoop(app)
        asyncio.set_event_loop(loop)
        with loop:
            loop.run_until_complete(work(app, workspace, project, long_runs, steps))


if __name__ == "__main__":
    main()
