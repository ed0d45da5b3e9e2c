"""Cost of a step on the Run page.

`python -m tests.bench.redraw [STEPS ...]`

An offscreen studio, without an engine, on the Run page with a run of STEPS steps (500, 2,380 and
20,000). Five more steps arrive one after another. Prints medians of the GUI thread's CPU time: for
everything that a step causes, for the longest round of the event loop, and for one chart that is
computed and painted separately.
"""

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("QT_API", "pyside6")

import qasync
from PySide6.QtWidgets import QApplication

from studio.app import Studio
from studio.widgets.charts.view import ChartView
from tests.studio.fakes.long_run import RUN, LongRun

MORE = 5
QUIET_S = 0.25


class Turns:
    """CPU time of the GUI thread between two rounds of its event loop."""

    def __init__(self) -> None:
        self.all: list[float] = []

    async def until_quiet(self) -> None:
        last = time.monotonic()
        while time.monotonic() - last < QUIET_S:
            used = time.thread_time()
            await asyncio.sleep(0)
            QApplication.sendPostedEvents()
            spent = time.thread_time() - used
            self.all.append(spent)
            if spent > 0.002:
                last = time.monotonic()
            await asyncio.sleep(0.001)


async def measure(app: QApplication, folder: Path, steps: int) -> None:
    studio = Studio(app, str(folder), folder / "studio.toml")
    studio.window.resize(1440, 900)
    long_run = LongRun(studio.session, steps)
    studio.window.show()
    studio.session.run.select(RUN)
    studio.window.show_page("run")
    await Turns().until_quiet()
    sums, longest = [], []
    for _ in range(MORE):
        long_run.say_step()
        turns, used = Turns(), time.thread_time()
        studio.session.run.tell()
        turns.all.append(time.thread_time() - used)
        await turns.until_quiet()
        sums.append(sum(turns.all))
        longest.append(max(turns.all))
    chart_times = [time_chart(view) for view in studio.window.findChildren(ChartView)]
    shown = [seconds for seconds in chart_times if seconds is not None]
    print(
        f"{steps} steps: {ms(median(sums))} for one more, longest turn {ms(median(longest))}; "
        f"{len(shown)} of {len(chart_times)} charts in view, one alone {ms(median(shown))}, "
        f"the dearest {ms(max(shown))}"
    )
    studio.window.close()
    await studio.close()


def time_chart(view: ChartView) -> float | None:
    """Return the time to redraw and paint a chart; None if it is not visible."""
    if view.visibleRegion().isEmpty():
        return None
    taken = []
    for _ in range(3):
        used = time.thread_time()
        view.redraw()
        view.grab()
        taken.append(time.thread_time() - used)
    return median(taken)


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def main() -> None:
    counts = [int(word) for word in sys.argv[1:]] or [500, 2380, 20_000]
    app = QApplication([])
    app.setQuitOnLastWindowClosed(False)
    loop = qasync.QEventLoop(app)
    asyncio.set_event_loop(loop)
    for steps in counts:
        with tempfile.TemporaryDirectory() as folder:
            for name in ("CONFIG_HOME", "STATE_HOME", "RUNTIME_DIR"):
                os.environ[f"XDG_{name}"] = folder
            loop.run_until_complete(measure(app, Path(folder), steps))


if __name__ == "__main__":
    main()
