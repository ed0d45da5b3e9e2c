"""Button scenes of Trajectories over a real engine: groups, labels, evidence, raw records."""

import asyncio
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.requests.filters import TextSearch
from engine.protocol.requests.runs import TrajectoryQuery
from studio.text.hits import pattern_of_searches
from tests.studio.buttons.stage import Row, Scene, Stage

Key = Qt.Key


def press_key(stage: Stage, page: Any, key: Qt.Key) -> None:
    stage.studio.window.activateWindow()
    page._home().setFocus()
    QTest.keyClick(QApplication.focusWidget() or page._home(), key)


async def open_groups(stage: Stage) -> Any:
    """Open the imported run's groups, the first of them in columns."""
    await stage.open_run(stage.backend.lab, stage.backend.imported)
    page = stage.page("trajectories")
    await stage.until(lambda: page._siblings is not None)
    if page._view != 0:
        page.set_mode(0)
    if page._groups.query != TrajectoryQuery():
        page.show_query(TrajectoryQuery())
    page._home().setFocus()
    return page


async def plain(stage: Stage) -> None:
    await open_groups(stage)


async def judged_run(stage: Stage) -> None:
    """Run with a judge: a label can be used as an example."""
    await stage.open_run(stage.backend.lab, stage.backend.trained)
    page = stage.page("trajectories")
    await stage.until(lambda: page._siblings is not None)


OTHER = r"words ColumnHead Trajectory (\d).*-> Trajectory (?!\1)"
"""A column shows another trajectory than before."""


async def narrow(stage: Stage) -> None:
    """Four trajectories with space for three columns."""
    page = await open_groups(stage)
    page._columns.page(-1)


async def paged(stage: Stage) -> None:
    page = await open_groups(stage)
    page._columns.page(1)


async def queue(stage: Stage) -> None:
    """First group of the review queue."""
    page = await open_groups(stage)
    if not page._queue.active:
        page.review_next()
    await stage.until(lambda: page._queue.bar.isVisible() and not page.tasks.busy("siblings"))


async def searching(stage: Stage) -> None:
    page = await open_groups(stage)
    if not page._panel.bar.input.text():
        QTest.keyClicks(page._panel.bar.input, "ab")


async def table(stage: Stage) -> None:
    page = await open_groups(stage)
    page.set_mode(2)


async def hits(stage: Stage) -> None:
    """Reader of a trajectory whose prompt has two hits."""
    page = await open_groups(stage)
    record = page._columns.record()
    words = next(one.content for one in record.messages if one.role == "user").split()
    page._panel._change(filter=f'prompt:"{words[0]}"')
    found = [TextSearch("prompt", word, True) for word in words[:2]]
    page._reader.set_hits({"prompt": pattern_of_searches(found, "prompt")})
    page.set_mode(1)


async def pending(stage: Stage) -> None:
    """The best trajectory is labelled, not yet applied."""
    page = await open_groups(stage)
    await stage.until(lambda: page._groups.total and not page.tasks.busy("siblings"))
    for _ in range(20):  # a key pressed before the group is loaded has no effect
        if page._labels.labelling.draft:
            break
        press_key(stage, page, Key.Key_2)
        await asyncio.sleep(0.1)
    await stage.until(lambda: page._labels.labelling.preview)


async def label_applied(stage: Stage) -> None:
    page = await open_groups(stage)
    if not page._labels.toast.isVisible():
        await pending(stage)
        stage.press("Apply label")
        await stage.until(lambda: page._labels.toast.isVisible())


async def evidence(stage: Stage) -> None:
    page = await open_groups(stage)
    if not page._proof.sheet.is_open():
        press_key(stage, page, Key.Key_E)
    await stage.until(lambda: page._proof.sheet.is_open())


async def raw(stage: Stage) -> None:
    """Reader with the raw record."""
    page = await open_groups(stage)
    page.set_mode(1)
    page._reader.evidence.show_tab(3)


async def large_image(stage: Stage) -> None:
    """An image of the reader over the page."""
    page = await open_groups(stage)
    page.set_mode(1)
    if not page._images.view.isVisible():
        page._images.pictures.opened.emit(1, "0" * 64)
    await stage.until(lambda: "no image" in page._images.view.accessibleName())


async def nothing_found(stage: Stage) -> None:
    page = await open_groups(stage)
    page.show_query(TrajectoryQuery(filter="nobody said this"))
    page.set_mode(0)


TRAJECTORIES = [
    Scene(
        "reading",
        plain,
        [
            Row("FilterBar.saved", "shown QMenu"),
            Row("GroupPanel.queue", "shown QMenu All reasons"),
            Row("FilterBar.export", "shown QMenu Export"),
            Row("LabelBar._effect", "shown QMenu"),
        ],
    ),
    Scene(
        "review queue",
        queue,
        [
            Row("QueueBar._next", "GET .*/groups/|hidden QueueBar"),
            Row("QueueBar._leave", "hidden QueueBar"),
        ],
    ),
    Scene("judged", judged_run, [Row("LabelBar._teach", "checked Toggle Use as an example")]),
    Scene("narrow", narrow, [Row("GroupHead._after", OTHER)]),
    Scene("paged", paged, [Row("GroupHead._before", OTHER)]),
    Scene("searching", searching, [Row("FilterInput._clear", "words FilterInput ab -> ")]),
    Scene("table", table, [Row("FilterBar.columns", "shown QMenu")]),
    Scene(
        "hits",
        hits,
        [
            Row("Reader._hit_after", "words Text .* of "),
            Row("Reader._hit_before", "words Text .* of "),
            Row("Reader._chat", "page checkpoints"),
        ],
    ),
    Scene("pending", pending, [Row("LabelBar._apply", "POST .*/labels")]),
    Scene(
        "applied",
        label_applied,
        [
            Row("Toast._close of TrajectoriesPage", "hidden Toast"),
            Row("Toast._undo of TrajectoriesPage", " .*/labels"),
        ],
    ),
    Scene("evidence", evidence, [Row("Sheet: Close of TrajectoriesPage", "hidden .*Sheet")]),
    Scene(
        "raw",
        raw,
        [Row("RawView._choice", "shown QMenu .*Record"), Row("RawView._copy", "copied ")],
    ),
    Scene("image", large_image, [Row("ImageView._close of TrajectoriesPage", "hidden ImageView")]),
    Scene("nothing found", nothing_found, [Row("NoTrajectories: Clear filters", "POST .*/groups")]),
]
