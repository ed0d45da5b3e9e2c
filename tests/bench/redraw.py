"""What does one more step cost the Run page?   python -m tests.bench.redraw [STEPS ...]

A whole studio offscreen, without an engine, on the page Run with a run of so many steps (500, 2 380
and 20 000). Five more arrive, one after the other, as they do while a run is caught up with. Prints
medians of the CPU time of the GUI thread: of all that follows on a step, of the longest turn of the
event loop in it, and of one chart that is worked out and painted by itself.
"""

import asyncio
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("QT_API", "pyside6")

import qasync
from PySide6.QtWidgets import QApplication

from engine.protocol import events as e
from engine.protocol.config import ProjectConfig
from engine.protocol.records import RunSpec, RunSummary
from studio.app import Studio
from studio.widgets.charts.view import ChartView
from tests.studio.made_metrics import drift, lengths, signs, use

RUN = "01JD5BENCHREDRAW0000000000"
MORE = 5
QUIET_S = 0.25
PHASES = ("step", "rolling_out", "training", "publishing", "judging")


def metrics(step: int, dice: random.Random) -> dict[str, float]:
    reward = {"reward/mean": dice.random(), "reward/part/rules": dice.random()}
    groups = {"groups/std_mean": dice.random(), "groups/no_signal": dice.random() / 4}
    speed = {"tokens_per_s/sample": dice.gauss(900, 30), "tokens_per_s/train": dice.gauss(500, 20)}
    seconds = {f"time_s/{phase}": dice.random() for phase in PHASES}
    update = {name: dice.random() for name in ("loss", "entropy", "grad_norm", "clip/high", "kl")}
    return {
        **reward, **groups, **speed, **seconds, **update, **lengths(step % 40), **drift(dice),
        **use(dice), **signs(dice), "lr": 1e-5, "unscored": 1.0, "trajectories": 64.0,
        "truncated": 0.02, "clip/low": 0.01,
    }  # fmt: skip


class Told:
    """Folds steps into the studio's store as the feed would."""

    def __init__(self, studio: Studio, steps: int) -> None:
        self.studio, self.seq, self.step = studio, 0, 0
        self.dice = random.Random(1)
        config = ProjectConfig.model_validate({"train": {"steps": steps + 2 * MORE}})
        spec = RunSpec(id=RUN, name="far-run", project="bench", started_at=time.time() - 1e6,
                       config=config, model_path="/none")  # fmt: skip
        studio.session.runs.put(
            RunSummary(
                id=RUN,
                name="far-run",
                project="bench",
                project_path="/none",
                path="/none",
                kind="train",
                state="running",
                step=0,
                steps=steps,
                started_at=spec.started_at,
                changed_at=spec.started_at,
            )
        )
        self.say(e.RunStarted(spec=spec))
        for _ in range(steps):
            self.say_step()

    def say_step(self) -> None:
        self.step += 1
        self.say(e.StepStarted(step=self.step, groups=[]))
        self.say(e.StepFinished(step=self.step, metrics=metrics(self.step, self.dice)))

    def say(self, event: e.Event) -> None:
        self.seq += 1
        at = self.studio.session.runs.state(RUN).at or time.time() - 1e6
        stamped = event.model_copy(update={"run_id": RUN, "seq": self.seq, "at": at + 1})
        self.studio.session.runs.fold(RUN, [stamped])


class Turns:
    """The GUI thread's CPU time between two rounds of its event loop."""

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
    told = Told(studio, steps)
    studio.window.show()
    studio.session.run.select(RUN)
    studio.window.show_page("run")
    await Turns().until_quiet()
    sums, longest = [], []
    for _ in range(MORE):
        told.say_step()
        turns, used = Turns(), time.thread_time()
        studio.session.run.tell()
        turns.all.append(time.thread_time() - used)
        await turns.until_quiet()
        sums.append(sum(turns.all))
        longest.append(max(turns.all))
    alone = [chart_alone(view) for view in studio.window.findChildren(ChartView)]
    shown = [seconds for seconds in alone if seconds is not None]
    print(
        f"{steps} steps: {ms(median(sums))} for one more, longest turn {ms(median(longest))}; "
        f"{len(shown)} of {len(alone)} charts in view, one alone {ms(median(shown))}, "
        f"the dearest {ms(max(shown))}"
    )
    studio.window.close()
    await studio.close()


def chart_alone(view: ChartView) -> float | None:
    """Its redraw and its painting; None where it is out of view."""
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
