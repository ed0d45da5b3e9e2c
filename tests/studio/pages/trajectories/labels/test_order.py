"""Labels, undos and redos that are said while another one is being stored."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from engine.protocol.problems import Problem
from studio.app import Studio
from studio.pages.trajectories.page import TrajectoriesPage
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.held import Held, hold
from tests.studio.pages.trajectories.labels.test_labels import (
    RUN,
    Key,
    held,
    judged,
    press,
    reading,
)

__all__ = ["judged"]


@asynccontextmanager
async def storing(
    engine: FakeEngine, app: QApplication, folder: Path
) -> AsyncIterator[tuple[Studio, TrajectoriesPage, Held]]:
    """The label of the first group is on its way, and the second group is looked at."""
    async with reading(engine, app, folder) as (studio, page):
        slow = hold(studio, "add_label")
        press(page, Key.Key_2)
        press(page, Key.Key_Return)
        await slow.asked.wait()
        first = page._siblings.group
        page._panel.move(1)
        await until(lambda: page._siblings.group.group != first.group)
        yield studio, page, slow
        await until(lambda: not (page.tasks.busy("label") or page.tasks.busy("siblings")))


def groups(engine: FakeEngine) -> list[int]:
    return [label.group for label in held(engine)]


def test_an_answer_leaves_the_draft_of_the_next_group(
    judged: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with storing(judged, qapp, tmp_path) as (_, page, slow):
            press(page, Key.Key_1)
            draft = page._labels.labelling.draft
            assert draft
            assert not page._bar._apply.is_busy(), "nothing of this group is on its way"
            slow.on.set()
            await until(lambda: len(held(judged)) == 1 and not page.tasks.busy("label"))
            assert page._labels.labelling.draft == draft

    run(job())


def test_an_enter_meanwhile_is_sent_after_it(
    judged: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with storing(judged, qapp, tmp_path) as (_, page, slow):
            press(page, Key.Key_1)
            for _ in range(2):
                press(page, Key.Key_Return)
            assert page._bar._apply.is_busy()
            slow.on.set()
            await until(lambda: len(held(judged)) == 2 and not page._labels.labelling.draft)
            assert not page._bar._apply.is_busy()
            assert groups(judged) == [2, 1], "as they were said"
            await until(lambda: page._siblings.labels)

    run(job())


def test_an_undo_meanwhile_is_of_what_is_being_stored(
    judged: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with storing(judged, qapp, tmp_path) as (_, page, slow):
            press(page, Key.Key_U)
            slow.on.set()
            await until(lambda: judged.labels[RUN].kept and not held(judged))
            await until(lambda: page._labels.toast.words().startswith("Undone: 2 labelled best"))

    run(job())


def test_a_late_refusal_says_which_group_and_keeps_the_undo_from_another_label(
    judged: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with reading(judged, qapp, tmp_path) as (studio, page):
            first = page._siblings.group.title
            press(page, Key.Key_3)
            press(page, Key.Key_Return)
            await until(lambda: len(held(judged)) == 1 and not page.tasks.busy("label"))
            await until(lambda: not page.tasks.busy("siblings"))
            slow, undone = hold(studio, "add_label"), hold(studio, "undo_label")
            undone.on.set()
            press(page, Key.Key_2)
            press(page, Key.Key_Return)
            await slow.asked.wait()
            page._panel.move(1)
            await until(lambda: page._siblings.group.group == 1)
            press(page, Key.Key_U)
            press(page, Key.Key_1)
            path = f"/runs/{RUN}/labels"
            judged.refuse[path] = Problem(code="store.full", message="The disk is full.")
            slow.on.set()
            await until(lambda: "The disk is full" in studio.notifier.words())
            await until(lambda: not page.tasks.busy("label"))
            words = studio.notifier.words()
            assert words.startswith(f"The label in “{first[:40]}”, step 2 was not saved.")
            assert "Nothing was undone" in words
            assert not undone.asked.is_set()
            assert len(held(judged)) == 1
            assert page._labels.labelling.draft, "what is said of the second group stays"

    run(job())


def test_a_label_stored_after_another_run_was_chosen_is_told_by_its_run(
    judged: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with storing(judged, qapp, tmp_path) as (studio, page, slow):
            changed: list[Any] = []
            page._labels.group_changed.connect(changed.append)
            studio.session.select_run("")
            slow.on.set()
            await until(lambda: "amber-kestrel: 2 labelled best" in studio.notifier.words())
            assert groups(judged) == [2]
            assert not changed

    run(job())


def test_the_undo_of_the_confirmation_is_of_its_label(
    judged: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with storing(judged, qapp, tmp_path) as (_, page, slow):
            press(page, Key.Key_1)
            draft = page._labels.labelling.draft
            slow.on.set()
            await until(lambda: page._labels.toast.words().startswith("2 labelled best"))
            page._labels.toast.undo_requested.emit()
            await until(lambda: judged.labels[RUN].kept and not held(judged))
            assert page._labels.labelling.draft == draft

    run(job())
