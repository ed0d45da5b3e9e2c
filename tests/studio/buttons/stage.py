"""Stage of button scenes: a studio over an engine, operated with the mouse and recorded."""

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QDialog, QMenu, QWidget

from engine.protocol.problems import Refused
from engine.protocol.records.runs import ACTIVE_STATES
from engine.protocol.requests.runs import Command, EditProject
from studio.app import Studio
from studio.widgets.cards.sheet import Sheet
from studio.widgets.controls.buttons import Button
from tests.studio.buttons.effects import Look, Watch
from tests.studio.buttons.every_button import buttons_of, centre, flaw, name_of, obstacle

TELL = bool(os.environ.get("ATELIER_BUTTONS"))
"""Print durations of clicks and shorten waits, for writing new rows."""
READY_S, EFFECT_S, QUIET_S = (6.0, 3.0, 0.6) if TELL else (20.0, 20.0, 0.6)

ACTIVE = (*ACTIVE_STATES, "queued")


@dataclass
class Stage:
    """Studio window, and the engine behind it: a `World` or the fake engine."""

    studio: Studio
    watch: Watch
    backend: Any
    seen_buttons: dict[str, str] = field(default_factory=dict)
    """Names of all buttons seen so far, with the text of one of them."""

    problems: list[Any] = field(default_factory=list)
    """Problems raised by the session, in order."""

    def __post_init__(self) -> None:
        self.session.problem_raised.connect(self.problems.append)

    @property
    def session(self) -> Any:
        return self.studio.session

    def page(self, key: str) -> Any:
        """Show a page and return it."""
        if self.studio.window.page != key:
            self.studio.window.show_page(key)
        return self.studio.pages[key]

    async def until(self, check: Callable[[], object], seconds: float = READY_S) -> None:
        end = time.monotonic() + seconds
        while not check():
            assert time.monotonic() < end, f"timeout: {self.in_view()}"
            await asyncio.sleep(0.01)

    async def open_run(self, project: Any, run: str = "") -> None:
        """Open a project and select one of its runs."""
        if self.session.project.path != str(project):
            self.session.open_project(str(project), "")
            await self.until(lambda: self.session.project.path == str(project))
            await self.until(lambda: not self.session.tasks.busy("project"))
        if run and self.session.run.run_id != run:
            self.session.select_run(run)

    def dialog(self, title: str) -> QDialog | None:
        """Return the visible dialog whose title starts with `title`."""
        for top in QApplication.topLevelWidgets():
            if isinstance(top, QDialog) and top.isVisible() and top.windowTitle().startswith(title):
                return top
        return None

    async def open_dialog(self, title: str, action: str, job: str) -> None:
        """Trigger an action that opens a dialog, and wait for the dialog."""
        if not self.dialog(title):
            await self.until(lambda: not self.session.tasks.busy(job))
            self.studio.actions.trigger(action)
            await self.until(lambda: self.dialog(title))

    async def edit_settings(self, values: dict[str, Any]) -> None:
        """Change settings of the open project."""
        refused: list[Any] = []
        self.session.edit(EditProject(values=values), lambda _: None, refused.append)
        await self.until(lambda: not self.session.writing)
        assert not refused, refused

    def in_view(self) -> str:
        """Describe page, dialogs and notification for a failure message."""
        tops = [top.windowTitle() for top in QApplication.topLevelWidgets() if top.isVisible()]
        wrong = [str(problem) for problem in self.problems[-2:]]
        return f"{self.studio.window.page} {tops} {self.studio.notifier.words()!r} {wrong}"

    def buttons(self) -> list[QAbstractButton]:
        """Return the buttons of the window and of its dialogs."""
        reachable = []
        for top in QApplication.topLevelWidgets():
            if top is self.studio.window or top.isVisible():
                reachable += buttons_of(top)
        unique = list(dict.fromkeys(reachable))
        self.seen_buttons.update({name_of(one): one.text() for one in unique})
        return unique

    def find(self, row: "Row") -> tuple[QAbstractButton | None, str]:
        """Return the button of a row that the mouse can reach, or the reason why there is none."""
        why = "not there"
        for button in self.buttons():
            if name_of(button) != row.name or not re.search(row.words, words_of(button)):
                continue
            reason = obstacle(button)
            if not reason:
                return button, ""
            why = reason
        return None, why

    async def press_when_reachable(self, words: str) -> None:
        """Click the button with this text as soon as the mouse can reach it."""
        all_buttons = self.buttons
        await self.until(
            lambda: any(words_of(b) == words and not obstacle(b) for b in all_buttons())
        )
        self.press(words)

    def press(self, words: str, top: QWidget | None = None) -> None:
        """Click the visible button with this text."""
        for button in buttons_of(top or self.studio.window):
            if words_of(button) == words and not obstacle(button):
                click(button)
                return
        raise AssertionError(f"no button {words!r} can be pressed: {self.in_view()}")

    async def rest(self) -> None:
        """Wait until no run is starting, then stop all active and queued runs."""
        session, stopped = self.session, set[str]()
        await self.until(lambda: not session.tasks.busy("train") and not session.writing)
        end = time.monotonic() + READY_S
        while going := [run for run in await session.client.runs() if run.state in ACTIVE]:
            assert time.monotonic() < end, f"runs still active: {going}"
            for run in going:
                if run.id not in stopped:
                    stopped.add(run.id)
                    with contextlib.suppress(Refused):  # already ended
                        await session.client.command(run.id, Command(action="stop_now"))
            await asyncio.sleep(0.05)
        session.refresh()
        await self.until(lambda: not session.runs.active())

    async def quiet(self) -> Look:
        """Return the state of the window once it has stopped changing, or after QUIET_S."""
        before, end = self.watch.look(), time.monotonic() + QUIET_S
        while time.monotonic() < end:
            await asyncio.sleep(0.04)
            now = self.watch.look()
            if now == before:
                return now
            before = now
        return before

    async def tidy(self) -> None:
        """Close menus, dialogs and sheets like Escape does."""
        for top in QApplication.topLevelWidgets():
            if isinstance(top, QMenu) and top.isVisible():
                top.close()
            elif isinstance(top, QDialog) and top.isVisible():
                top.reject()
        for sheet in self.studio.window.findChildren(Sheet):
            if sheet.is_open():
                sheet.close_sheet()
        self.studio.notifier._toast.hide()
        await asyncio.sleep(0.02)


@dataclass(frozen=True)
class Row:
    """Button by name, with the required effect of its click (a pattern for a line of
    `Watch.since`), and a pattern for its text if the name is ambiguous.
    """

    name: str
    effect: str
    words: str = ""
    rest: bool = False
    """Stop all runs afterwards, because the click started one."""


Reach = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True)
class Scene:
    """State of the window, how to reach it (repeatedly), and the buttons that can be used in it."""

    name: str
    reach: Reach
    rows: Sequence[Row]
    fake: str = ""
    """Reason for the fake engine: a real one would need something this machine does not have."""


def words_of(button: QAbstractButton) -> str:
    return button.words() if isinstance(button, Button) else button.text()


def click(button: QAbstractButton) -> None:
    QTest.mouseClick(button, Qt.MouseButton.LeftButton, pos=centre(button))


async def play(stage: Stage, scene: Scene) -> list[str]:
    """Click every button of a scene; return what is wrong."""
    wrong = []
    for row in scene.rows:
        try:
            if problem := await _play_row(stage, scene, row):
                wrong.append(f"{scene.name} · {row.name}: {problem}")
        except (AssertionError, TimeoutError) as error:
            wrong.append(f"{scene.name} · {row.name}: {error!r} {stage.in_view()}")
        await stage.tidy()
        if row.rest:
            await stage.rest()
    return wrong


async def _play_row(stage: Stage, scene: Scene, row: Row) -> str:
    await scene.reach(stage)
    end = time.monotonic() + READY_S
    while True:  # what the engine says late may move the button once more
        button, why = stage.find(row)
        if button is not None:
            before = await stage.quiet()
            button, why = stage.find(row)
        if button is not None:
            break
        if time.monotonic() > end:
            return f"cannot be pressed: {why}"
        await asyncio.sleep(0.03)
    if problem := flaw(button):
        return problem
    clicked_at = time.monotonic()
    click(button)
    effects = stage.watch.since(before)
    while not any(re.search(row.effect, line, re.DOTALL) for line in effects):
        if time.monotonic() - clicked_at > EFFECT_S:
            break
        await asyncio.sleep(0.02)
        effects = stage.watch.since(before)
    else:
        if TELL:
            print(f"  {row.name}: {time.monotonic() - clicked_at:.2f} s")
        return ""
    stage.buttons()
    effects.sort(key=lambda line: line.startswith(("GET", "moved")))
    return f"no {row.effect!r} among its effects: {[line[:90] for line in effects[:9]]}"
