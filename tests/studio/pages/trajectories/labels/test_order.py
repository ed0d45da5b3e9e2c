"""Labels, undos and redos entered while another label is being stored."""

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
    active_labels,
    press_key,
    trajectories_page,
    with_judged_run,
)

__all__ = ["with_judged_run"]


@asynccontextmanager
async def label_in_progress(
    engine: FakeEngine, app: QApplication, folder: Path
) -> AsyncIterator[tuple[Studio, TrajectoriesPage, Held]]:
    """Store the label of the first group slowly while the second group is open."""
    async with trajectories_page(engine, app, folder) as (studio, page):
        slow = hold(studio, "add_label")
        press_key(page, Key.Key_2)
        press_key(page, Key.Key_Return)
        await slow.asked.wait()
        first = page._siblings.group
        page._panel.move(1)
        await until(lambda: page._siblings.group.group != first.group)
        yield studio, page, slow
        await until(lambda: not (page.tasks.busy("label") or page.tasks.busy("siblings")))


def labelled_groups(engine: FakeEngine) -> list[int]:
    return [label.group for label in active_labels(engine)]


def test_stored_label_keeps_draft_of_next_group(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with label_in_progress(with_judged_run, qapp, tmp_path) as (_, page, slow):
            press_key(page, Key.Key_1)
            draft = page._labels.labelling.draft
            assert draft
            assert not page._bar._apply.is_busy(), "no label of this group is being stored"
            slow.on.set()
            await until(
                lambda: len(active_labels(with_judged_run)) == 1 and not page.tasks.busy("label")
            )
            assert page._labels.labelling.draft == draft

    run(job())


def test_second_label_is_sent_after_the_first(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with label_in_progress(with_judged_run, qapp, tmp_path) as (_, page, slow):
            press_key(page, Key.Key_1)
            for _ in range(2):
                press_key(page, Key.Key_Return)
            assert page._bar._apply.is_busy()
            slow.on.set()
            await until(
                lambda: (
                    len(active_labels(with_judged_run)) == 2 and not page._labels.labelling.draft
                )
            )
            assert not page._bar._apply.is_busy()
            assert labelled_groups(with_judged_run) == [2, 1], "in the order they were entered"
            await until(lambda: page._siblings.labels)

    run(job())


def test_undo_applies_to_label_being_stored(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with label_in_progress(with_judged_run, qapp, tmp_path) as (_, page, slow):
            press_key(page, Key.Key_U)
            slow.on.set()
            await until(
                lambda: with_judged_run.labels[RUN].kept and not active_labels(with_judged_run)
            )
            await until(lambda: page._labels.toast.words().startswith("Undone: 2 labelled best"))

    run(job())


def test_late_rejection_names_group_and_skips_undo(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (studio, page):
            first = page._siblings.group.title
            press_key(page, Key.Key_3)
            press_key(page, Key.Key_Return)
            await until(
                lambda: len(active_labels(with_judged_run)) == 1 and not page.tasks.busy("label")
            )
            await until(lambda: not page.tasks.busy("siblings"))
            slow, undone = hold(studio, "add_label"), hold(studio, "undo_label")
            undone.on.set()
            press_key(page, Key.Key_2)
            press_key(page, Key.Key_Return)
            await slow.asked.wait()
            page._panel.move(1)
            await until(lambda: page._siblings.group.group == 1)
            press_key(page, Key.Key_U)
            press_key(page, Key.Key_1)
            path = f"/runs/{RUN}/labels"
            with_judged_run.refuse[path] = Problem(code="store.full", message="The disk is full.")
            slow.on.set()
            await until(lambda: "The disk is full" in studio.notifier.words())
            await until(lambda: not page.tasks.busy("label"))
            words = studio.notifier.words()
            assert words.startswith(f"The label in “{first[:40]}”, step 2 was not saved.")
            assert "Nothing was undone" in words
            assert not undone.asked.is_set()
            assert len(active_labels(with_judged_run)) == 1
            assert page._labels.labelling.draft, "the draft of the second group stays"

    run(job())


def test_label_stored_after_run_switch_is_notified_with_its_run(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with label_in_progress(with_judged_run, qapp, tmp_path) as (studio, page, slow):
            changed: list[Any] = []
            page._labels.group_changed.connect(changed.append)
            studio.session.select_run("")
            slow.on.set()
            await until(lambda: "amber-kestrel: 2 labelled best" in studio.notifier.words())
            assert labelled_groups(with_judged_run) == [2]
            assert not changed

    run(job())


def test_undo_of_confirmation_applies_to_its_label(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with label_in_progress(with_judged_run, qapp, tmp_path) as (_, page, slow):
            press_key(page, Key.Key_1)
            draft = page._labels.labelling.draft
            slow.on.set()
            await until(lambda: page._labels.toast.words().startswith("2 labelled best"))
            page._labels.toast.undo_requested.emit()
            await until(
                lambda: with_judged_run.labels[RUN].kept and not active_labels(with_judged_run)
            )
            assert page._labels.labelling.draft == draft

    run(job())
