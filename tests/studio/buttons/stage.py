"""The stage of a scene: a studio over an engine, pressed with the mouse, watched for effects."""

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
"""Print how long clicks take, and wait for no more than a few seconds: for who writes a row."""
READY_S, EFFECT_S, QUIET_S = (6.0, 3.0, 0.6) if TELL else (20.0, 20.0, 0.6)

ACTIVE = (*ACTIVE_STATES, "queued")


@dataclass
class Stage:
    """A window, and what is behind it: a real engine's world or the fake engine."""

    studio: Studio
    watch: Watch
    behind: Any
    met: dict[str, str] = field(default_factory=dict)
    """Names of all buttons that there were, with the words of one of them."""

    problems: list[Any] = field(default_factory=list)
    """Everything that went wrong, in the order it was said in."""

    def __post_init__(self) -> None:
        self.session.problem_raised.connect(self.problems.append)

    @property
    def session(self) -> Any:
        return self.studio.session

    def page(self, key: str) -> Any:
        """A page, in view."""
        if self.studio.window.page != key:
            self.studio.window.show_page(key)
        return self.studio.pages[key]

    async def until(self, check: Callable[[], object], seconds: float = READY_S) -> None:
        end = time.monotonic() + seconds
        while not check():
            assert time.monotonic() < end, f"it did not happen in time: {self.in_view()}"
            await asyncio.sleep(0.01)

    async def opened(self, project: Any, run: str = "") -> None:
        """A project is open, and one of its runs is looked at."""
        if self.session.project.path != str(project):
            self.session.open_project(str(project), "")
            await self.until(lambda: self.session.project.path == str(project))
            await self.until(lambda: not self.session.tasks.busy("project"))
        if run and self.session.run.run_id != run:
            self.session.select_run(run)

    def dialog(self, title: str) -> QDialog | None:
        """The visible dialog whose title begins so."""
        for top in QApplication.topLevelWidgets():
            if isinstance(top, QDialog) and top.isVisible() and top.windowTitle().startswith(title):
                return top
        return None

    async def asked(self, title: str, action: str, job: str) -> None:
        """The dialog that an action opens and a job of the session waits for."""
        if not self.dialog(title):
            await self.until(lambda: not self.session.tasks.busy(job))
            self.studio.actions.trigger(action)
            await self.until(lambda: self.dialog(title))

    async def edited(self, values: dict[str, Any]) -> None:
        """Settings are in the open project."""
        refused: list[Any] = []
        self.session.edit(EditProject(values=values), lambda _: None, refused.append)
        await self.until(lambda: not self.session.writing)
        assert not refused, refused

    def in_view(self) -> str:
        """Page, dialogs and the line at the foot, for a failure's message."""
        tops = [top.windowTitle() for top in QApplication.topLevelWidgets() if top.isVisible()]
        wrong = [str(problem) for problem in self.problems[-2:]]
        return f"{self.studio.window.page} {tops} {self.studio.notifier.words()!r} {wrong}"

    def buttons(self) -> list[QAbstractButton]:
        """Buttons of the window and of all dialogs that belong to it."""
        found = []
        for top in QApplication.topLevelWidgets():
            if top is self.studio.window or top.isVisible():
                found += buttons_of(top)
        unique = list(dict.fromkeys(found))
        self.met.update({name_of(one): one.text() for one in unique})
        return unique

    def find(self, row: "Row") -> tuple[QAbstractButton | None, str]:
        """The button of a row that a mouse reaches, or why there is none."""
        why = "not there"
        for button in self.buttons():
            if name_of(button) != row.name or not re.search(row.words, words_of(button)):
                continue
            found = obstacle(button)
            if not found:
                return button, ""
            why = found
        return None, why

    async def pressed(self, words: str) -> None:
        """Click the button with these words once a mouse reaches it."""
        found = self.buttons
        await self.until(lambda: any(words_of(b) == words and not obstacle(b) for b in found()))
        self.press(words)

    def press(self, words: str, top: QWidget | None = None) -> None:
        """Click the one visible button with these words."""
        for button in buttons_of(top or self.studio.window):
            if words_of(button) == words and not obstacle(button):
                click(button)
                return
        raise AssertionError(f"no button {words!r} can be pressed: {self.in_view()}")

    async def rest(self) -> None:
        """Nothing is started any more, and every run has ended, those that wait among them."""
        session, told = self.session, set[str]()
        await self.until(lambda: not session.tasks.busy("train") and not session.writing)
        end = time.monotonic() + READY_S
        while going := [run for run in await session.client.runs() if run.state in ACTIVE]:
            assert time.monotonic() < end, f"runs go on: {going}"
            for run in going:
                if run.id not in told:
                    told.add(run.id)
                    with contextlib.suppress(Refused):  # it has ended by itself
                        await session.client.command(run.id, Command(action="stop_now"))
            await asyncio.sleep(0.05)
        session.refresh()
        await self.until(lambda: not session.runs.active())

    async def quiet(self) -> Look:
        """A look at the window once nothing changes in it any more, or soon."""
        before, end = self.watch.look(), time.monotonic() + QUIET_S
        while time.monotonic() < end:
            await asyncio.sleep(0.04)
            now = self.watch.look()
            if now == before:
                return now
            before = now
        return before

    async def tidy(self) -> None:
        """Close menus, dialogs and sheets, as Escape does."""
        for top in QApplication.topLevelWidgets():
            if isinstance(top, QMenu) and top.isVisible():
                top.close()
            elif isinstance(top, QDialog) and top.isVisible():
                top.reject()
        for sheet in self.studio.window.findChildren(Sheet):
            if sheet.is_open():
                sheet.close_sheet()
        self.studio.notifier._toast.hide()  # over what is below it, as long as it says something
        await asyncio.sleep(0.02)


@dataclass(frozen=True)
class Row:
    """A button: its name, the effect that its click must have (a pattern for one of the lines of
    `Watch.since`), and a pattern for its words where the name alone is not enough."""

    name: str
    effect: str
    words: str = ""
    rest: bool = False
    """Stop afterwards what goes on in the engine: the click has started it."""


Reach = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True)
class Scene:
    """A state of the window, how it is reached (again), and the buttons that can be used in it."""

    name: str
    reach: Reach
    rows: Sequence[Row]
    fake: str = ""
    """Reason why the fake engine is behind the window: a real one would need something that this
    machine cannot have in seconds."""


def words_of(button: QAbstractButton) -> str:
    return button.words() if isinstance(button, Button) else button.text()


def click(button: QAbstractButton) -> None:
    QTest.mouseClick(button, Qt.MouseButton.LeftButton, pos=centre(button))


async def play(stage: Stage, scene: Scene) -> list[str]:
    """Click every button of a scene; gives what is wrong."""
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
    button, why = stage.find(row)
    while button is None:
        if time.monotonic() > end:
            return f"cannot be pressed: {why}"
        await asyncio.sleep(0.03)
        button, why = stage.find(row)
    before = await stage.quiet()
    button, why = stage.find(row)
    if button is None and not row.name.startswith("Toast"):
        stage.studio.notifier._toast.hide()  # said meanwhile, over what is below it
        before = await stage.quiet()
        button, why = stage.find(row)
    if button is None:
        return f"went away: {why}"
    if found := flaw(button):
        return found
    begun = time.monotonic()
    click(button)
    effects = stage.watch.since(before)
    while not any(re.search(row.effect, line, re.DOTALL) for line in effects):
        if time.monotonic() - begun > EFFECT_S:
            break
        await asyncio.sleep(0.02)
        effects = stage.watch.since(before)
    else:
        if TELL:
            print(f"  {row.name}: {time.monotonic() - begun:.2f} s")
        return ""
    stage.buttons()
    effects.sort(key=lambda line: line.startswith(("GET", "moved")))
    return f"no {row.effect!r} among its effects: {[line[:90] for line in effects[:9]]}"
