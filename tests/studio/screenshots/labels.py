"""Screenshots of labelling in every state, from the fake engine: both themes, two sizes.

`python -m tests.studio.screenshots.labels FOLDER [state ...]`
"""

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("QT_API", "pyside6")

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.events import run as e
from tests.studio.fakes.engine import FakeEngine
from tests.studio.screenshots.pages import (
    fill_workspace,
    open_project,
    run_command,
    settle,
    studio_on,
    take,
    wait_for,
)

engine: FakeEngine
SHIFT = Qt.KeyboardModifier.ShiftModifier
Key = Qt.Key


def press_key(page: Any, key: Qt.Key, modifiers: Any = Qt.KeyboardModifier.NoModifier) -> None:
    QTest.keyClick(QApplication.focusWidget() or page._home(), key, modifiers)


async def rest(page: Any) -> None:
    press_key(page, Key.Key_Right)


async def pending(page: Any) -> None:
    press_key(page, Key.Key_6)
    press_key(page, Key.Key_8, SHIFT)
    press_key(page, Key.Key_G)
    await wait_for(lambda: page._labels.labelling.preview)


async def asking(page: Any) -> None:
    press_key(page, Key.Key_S)
    QTest.keyClicks(QApplication.focusWidget(), "85")


async def committed(page: Any) -> None:
    press_key(page, Key.Key_Escape)
    page._home().setFocus()
    press_key(page, Key.Key_X)
    await wait_for(lambda: page._labels.labelling.preview)
    press_key(page, Key.Key_Return)
    await settle()
    await wait_for(lambda: page._labels.toast.words())
    await wait_for(lambda: not page.tasks.busy("siblings"))
    press_key(page, Key.Key_V)
    press_key(page, Key.Key_4)
    press_key(page, Key.Key_Return)
    await settle(0.8)


async def sheet(page: Any) -> None:
    page._columns.focus_index(5)
    press_key(page, Key.Key_E)
    await settle()


async def reader(page: Any) -> None:
    page._proof.panel.passage_wanted.emit("TP 1041 was moved on 12 May")
    await settle()


async def record(page: Any) -> None:
    page._reader.evidence.show_tab(2)
    await settle()


async def raw(page: Any) -> None:
    page._reader.evidence.show_tab(3)
    await settle()


async def compare(page: Any) -> None:
    page._home().setFocus()
    page._columns.focus_index(2)
    press_key(page, Key.Key_C)
    press_key(page, Key.Key_D)
    await settle()


async def table(page: Any) -> None:
    page.set_mode(2)
    page._rows.refresh()
    await settle()


async def scenarios(page: Any) -> None:
    page.set_mode(4)
    await wait_for(lambda: page._scenarios.rows.total)
    page._scenarios.selectRow(2)
    await settle()


async def groups_of_scenario(page: Any) -> None:
    page._scenarios.setFocus()
    press_key(page, Key.Key_Return)
    await wait_for(lambda: page._groups.total)
    await settle()


async def review(page: Any) -> None:
    page.set_mode(0)
    until = time.time() + 24 * 60
    run_id = page.session.run.run_id
    engine.runs[run_id].say(e.ReviewOpened(step=47, until=until, then="train"))
    await wait_for(lambda: not page._review.isHidden())


STATES: dict[str, Callable[[Any], Awaitable[None]]] = {
    "rest": rest,
    "pending": pending,
    "asking": asking,
    "committed": committed,
    "sheet": sheet,
    "reader": reader,
    "record": record,
    "raw": raw,
    "compare": compare,
    "table": table,
    "scenarios": scenarios,
    "of_scenario": groups_of_scenario,
    "review": review,
}


async def shoot(app: QApplication, folder: Path, wanted: list[str]) -> None:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    global engine
    engine = FakeEngine(workspace).start()
    made = fill_workspace(engine)
    try:
        async with studio_on(engine, app, folder) as studio:
            state = studio.session.runs.state(made.spec.id)
            await wait_for(lambda: state.seq == len(made.events))
            await open_project(studio, engine, "inbox-scout")
            studio.window.resize(1440, 900)
            studio.window.show_page("trajectories")
            page: Any = studio.pages["trajectories"]
            await wait_for(lambda: page._siblings is not None)
            studio.window.activateWindow()
            page._home().setFocus()
            await settle(0.6)
            for name, reach in STATES.items():
                await reach(page)
                if not wanted or name in wanted:
                    await take(studio, folder, f"labels-{name}")
            if not wanted or "review" in wanted:
                studio.window.show_page("run")
                await settle()
                await take(studio, folder, "labels-review-run")
    finally:
        engine.stop()


if __name__ == "__main__":
    run_command(shoot, names=True)
