"""Three tasks of a new user: clicks, keys, and the seconds that the keystroke-level model gives.

`python -m tests.bench.tasks`

The tasks are done in an offscreen window by real mouse and key events, and each checks that it was
done. Seconds are those of Card, Moran and Newell (1980, Communications of the ACM 23(7)): a key
0.28 s, pointing 1.1 s, a click 0.2 s, changing between mouse and keyboard 0.4 s, a decision 1.35 s;
the time for which the window kept the user waiting is measured and added. `BEFORE` has the same
tasks in the window before its Runs page, sweeps and filter expressions, counted by hand.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("QT_API", "pyside6")

import qasync
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from studio.pages.runs.table import CHOICE
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.simulated_run import Simulation, TrainConfig
from tests.studio.screenshots.pages import open_project, studio_on
from tests.studio.screenshots.runs import add_runs

KEY_S, POINT_S, CLICK_S, HAND_S, DECISION_S = 0.28, 1.1, 0.2, 0.4, 1.35
LEFT = Qt.MouseButton.LeftButton
SWEEP = "train.lr = [1e-5, 3e-5, 1e-4]\ntrain.group_size = [4, 8]"


@dataclass
class Effort:
    """Effort of a task: clicks, keys, decisions, changes between mouse and keyboard."""

    clicks: int = 0
    keys: int = 0
    decisions: int = 0
    hands: int = 0
    waited_s: float = 0.0

    def seconds(self) -> float:
        moved = self.clicks * (POINT_S + CLICK_S) + self.hands * HAND_S
        return moved + self.keys * KEY_S + self.decisions * DECISION_S + self.waited_s

    def words(self) -> str:
        return f"{self.clicks:3} clicks {self.keys:4} keys {self.seconds():6.1f} s"


BEFORE = {
    # search for the tool's name (also finds texts that mention it), table, sort, open row by row
    # until one has called the tool (one more at the least), veto, apply
    "find the worst trajectory of a tool and label it": Effort(4, 16, 6, 4),
    # five times: menu of the runs, a run, read its last validation and interval; then Setup's
    # project.toml of two of them to see what differs, in their folders
    "say which of five runs is better and why": Effort(14, 0, 14, 0),
    # Setup, Advanced; six times: two values by hand, train; then six times: menu, run, read
    "set up a sweep of six and read its result": Effort(14 + 12, 6 * 8, 6 * 3 + 6 * 2, 12),
}


class Hand:
    """The user: real events, and what they cost."""

    def __init__(self) -> None:
        self.effort = Effort()
        self._on_mouse = True

    def click(self, target: QWidget, at: QPoint | None = None) -> None:
        self._take(mouse=True)
        self.effort.clicks += 1
        QTest.mouseClick(target, LEFT, pos=at or target.rect().center())

    def choose(self, switch: Any, part: int) -> None:
        """Click a part of a segmented switch."""
        self.click(switch, switch._cells()[part].center().toPoint())

    def press(self, target: QWidget, key: Qt.Key, *modifiers: Qt.KeyboardModifier) -> None:
        self._take(mouse=False)
        self.effort.keys += 1 + len(modifiers)
        held = modifiers[0] if modifiers else Qt.KeyboardModifier.NoModifier
        QTest.keyClick(target, key, held)

    def write(self, target: QWidget, text: str) -> None:
        self._take(mouse=False)
        first, *rest = text.split("\n")
        self.effort.keys += len(first)
        QTest.keyClicks(target, first)
        for line in rest:
            self.press(target, Qt.Key.Key_Return)
            self.write(target, line)

    def decide(self) -> None:
        self.effort.decisions += 1

    async def wait(self, check: Callable[[], object]) -> None:
        started_at = time.perf_counter()
        while not check():
            if time.perf_counter() - started_at > 60:
                raise TimeoutError("the window did not follow")
            await asyncio.sleep(0.005)
        self.effort.waited_s += time.perf_counter() - started_at

    def _take(self, *, mouse: bool) -> None:
        self.effort.hands += mouse != self._on_mouse
        self._on_mouse = mouse


async def find_worst(studio: Any, engine: FakeEngine, hand: Hand) -> None:
    """Veto the trajectory with the lowest reward among those that called `read_email`."""
    page: Any = studio.pages["trajectories"]
    hand.decide()
    hand.click(studio.window.sidebar._rows["trajectories"])
    await hand.wait(lambda: page._groups.rowCount())
    hand.decide()
    hand.press(page, Qt.Key.Key_T)
    hand.press(page, Qt.Key.Key_Slash)
    editor = QApplication.focusWidget()
    hand.decide()
    hand.write(editor, "tool:read_email")
    hand.press(editor, Qt.Key.Key_Return)
    studio.window.activateWindow()  # the offscreen platform leaves the hidden suggestions active
    await hand.wait(lambda: page._rows.query.filter == "tool:read_email" and page._rows.total)
    hand.decide()
    header = page._table.horizontalHeader()
    titles = [page._rows.headerData(n, Qt.Orientation.Horizontal) for n in range(header.count())]
    column = titles.index("Reward")
    at = QPoint(header.sectionViewportPosition(column) + 20, header.height() // 2)
    for _ in range(2):
        if page._rows.query.sort == "reward" and not page._rows.query.descending:
            break
        hand.click(header.viewport(), at)
    await hand.wait(lambda: page._rows.record(0) is not None)
    worst = page._rows.record(0)
    hand.click(page._table.viewport(), page._table.visualRect(page._rows.index(0, 1)).center())
    hand.press(page._table, Qt.Key.Key_Return)
    await hand.wait(lambda: page._columns.record() and page._columns.record().id == worst.id)
    hand.decide()
    hand.press(page._reader.transcript, Qt.Key.Key_V)
    hand.press(page._reader.transcript, Qt.Key.Key_Return)
    run_id = studio.session.run.run_id
    await hand.wait(lambda: engine.labels[run_id].kept)
    (label,) = engine.labels[run_id].kept
    assert [(word.kind, word.trajectory_id) for word in label.words] == [("veto", worst.id)]


async def compare_five(studio: Any, engine: FakeEngine, hand: Hand) -> None:
    """Read the verdicts on five runs and the settings that differ."""
    page: Any = studio.pages["runs"]
    hand.decide()
    hand.press(studio.window, Qt.Key.Key_2, Qt.KeyboardModifier.ControlModifier)
    await hand.wait(lambda: page.model.is_loaded and page.model.total)
    table = page.table
    for row in range(5):
        hand.decide()
        hand.click(table.viewport(), table.visualRect(page.model.index(row, CHOICE)).center())
    hand.click(page._compare)
    view = page.compare_view
    await hand.wait(lambda: view.isVisible() and view._charts)
    for part in (1, 2):  # verdicts, then settings
        hand.decide()
        hand.choose(view._part, part)
    assert len(page.chosen.ids) == 5


async def sweep_six(studio: Any, engine: FakeEngine, hand: Hand) -> None:
    """Start a sweep over three learning rates and two group sizes."""
    page: Any = studio.pages["runs"]
    hand.decide()
    hand.press(studio.window, Qt.Key.Key_2, Qt.KeyboardModifier.ControlModifier)
    hand.choose(page._switch, 1)
    sweeps: Any = page.sweeps
    await hand.wait(sweeps.isVisible)
    hand.decide()
    hand.click(sweeps._new)
    sheet = sweeps._sheet
    await hand.wait(sheet.is_open)
    editor = sheet._space
    hand.press(editor, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    hand.decide()
    hand.write(editor, SWEEP)
    await hand.wait(sheet._go.isEnabled)
    hand.decide()
    hand.click(sheet._go)
    await hand.wait(lambda: engine.sweeps.started)
    asked = engine.sweeps.started[0].overrides["sweep.parameters"]["train"]
    assert [len(values) for values in asked.values()] == [3, 2]
    hand.decide()  # the best of them is the first row of its table


async def work(app: QApplication, folder: Path) -> None:
    workspace = folder / "workspace"
    workspace.mkdir()
    engine = FakeEngine(workspace).start()
    train = TrainConfig(steps=40, groups=8, group_size=8, validate_every=10)
    simulation = Simulation(train=train, judged=True)
    simulation.begin()
    for step in range(1, 21):
        simulation.step(step)
    try:
        add_runs(engine)
        engine.add_project("inbox-scout")
        engine.add_run(simulation.made)
        async with studio_on(engine, app, folder) as studio:
            studio.window.resize(1440, 900)
            tasks = (find_worst, compare_five, sweep_six)
            for title, task in zip(BEFORE, tasks, strict=True):
                await open_project(studio, engine, "inbox-scout" if task is find_worst else "tiles")
                studio.window.show_page("run")
                studio.window.activateWindow()
                await asyncio.sleep(0.5)
                hand = Hand()
                await task(studio, engine, hand)
                print(title)
                print(f"  before  {BEFORE[title].words()}")
                print(
                    f"  now     {hand.effort.words()}, {hand.effort.waited_s:.1f} s of it waiting"
                )
    finally:
        engine.stop()


def main() -> None:
    app = QApplication(sys.argv[:1])
    app.setQuitOnLastWindowClosed(False)
    loop = qasync.QEventLoop(app)
    asyncio.set_event_loop(loop)
    with tempfile.TemporaryDirectory() as folder, loop:
        loop.run_until_complete(work(app, Path(folder)))


if __name__ == "__main__":
    main()
