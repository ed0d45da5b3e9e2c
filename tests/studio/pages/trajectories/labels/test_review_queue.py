"""Review queue on the page: a label opens the next group, Escape leaves."""

from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.pages.trajectories.labels.test_labels import (
    Key,
    active_labels,
    press_key,
    trajectories_page,
    with_judged_run,
)

__all__ = ["with_judged_run"]


async def open_queue(page: Any) -> None:
    press_key(page, Key.Key_Q)
    await until(lambda: page._queue.active and page._queue.bar.isVisible())
    await shown(page)


async def shown(page: Any) -> None:
    await until(lambda: not (page.tasks.busy("siblings") or page.tasks.busy("label")))
    await until(lambda: place(page) == page._queue._place())


def place(page: Any) -> tuple[str, int, int]:
    group = page._siblings.group
    return group.split, group.step, group.group


def test_labels_follow_the_queue(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (studio, opened):
            page: Any = opened
            studio.actions.trigger("labels.queue")
            await until(lambda: page._queue.active)
            await shown(page)
            queue = page._queue._items
            assert len(queue) > 2
            assert (
                page._queue.bar.words()
                == f"Review queue  group 1 of {len(queue)}: {queue[0].words}"
            )
            press_key(page, Key.Key_1)
            press_key(page, Key.Key_Return)
            await until(lambda: page._queue._at == 1)
            await shown(page)
            assert len(active_labels(with_judged_run)) == 1
            page._queue.bar._next.click()
            await until(lambda: page._queue._at == 2)
            await shown(page)
            press_key(page, Key.Key_2)  # a draft: Escape discards it first
            press_key(page, Key.Key_Escape)
            assert page._queue.active
            press_key(page, Key.Key_Escape)
            assert not page._queue.active
            assert page._queue.bar.isHidden()
            await open_queue(page)
            assert place(page) == (queue[1].split, queue[1].step, queue[1].group), (
                "a labelled group leaves the queue, a skipped one stays"
            )

    run(job())


def test_blind_queue_shows_agreement_before_the_next_group(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, opened):
            page: Any = opened
            page._queue._set_blind(True)
            await open_queue(page)
            assert page._blind
            press_key(page, Key.Key_1)
            press_key(page, Key.Key_Return)
            await until(lambda: page._queue._labelled and not page._blind)
            await shown(page)
            assert page._queue.bar._next.words() == "Next"
            assert "agrees" in page._bar.sentence()
            press_key(page, Key.Key_Return)
            await until(lambda: page._queue._at == 1)
            await shown(page)
            assert page._blind
            press_key(page, Key.Key_Escape)
            await until(lambda: not (page._queue.active or page._blind))

    run(job())


def test_choosing_another_group_ends_the_queue(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, opened):
            page: Any = opened
            await open_queue(page)
            rows = range(page._groups.rowCount())
            other = next(row for row in rows if place_of(page._groups.record(row)) != place(page))
            page._panel.choose(other)
            await until(lambda: not page._queue.active and not page.tasks.busy("siblings"))
            assert place(page) == place_of(page._groups.record(other))
            entries = [one.text() for one in page._queue.menu(page).actions() if one.text()]
            assert entries[0] == "All reasons"
            assert "Near-ties" in entries

    run(job())


def place_of(group: Any) -> tuple[str, int, int]:
    return group.split, group.step, group.group
