"""Tooltips show external text as plain text."""

import asyncio
from pathlib import Path
from typing import Any

from PySide6.QtCore import QAbstractItemModel, QAbstractTableModel, Qt
from PySide6.QtGui import QTextDocument
from PySide6.QtWidgets import QAbstractItemView, QApplication, QLabel, QWidget

from studio.models.paged import ROOT
from studio.theme.plain_tooltips import plain_tip
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.simulated_run import SMALL, Simulation
from tests.studio.screenshots.pages import studio_on

HOSTILE = '<img src="file:///nowhere.png"><b>bold</b>\nsecond & last'


def displayed_text(tip: str) -> str:
    """Return the text that Qt displays for a tooltip."""
    if not tip.startswith("<"):
        return tip
    document = QTextDocument()
    document.setHtml(tip)
    return document.toPlainText()


def test_plain_tip_keeps_every_character(qapp: QApplication) -> None:
    for words in (HOSTILE, "a < b & c", "plain", "  two  spaces <", "&lt;b&gt;"):
        assert displayed_text(plain_tip(words)) == words
    assert "<img" not in plain_tip(HOSTILE)
    assert len(plain_tip("<" * 100_000)) < 20_000


def test_tooltips_and_labels_of_pages_show_no_external_rich_text(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    simulation = Simulation(name=HOSTILE, train=SMALL, judged=True)
    simulation.begin()
    for step in (1, 2):
        simulation.step(step)
    view = engine.add_project("inbox-scout", description=HOSTILE, agent_tools=[HOSTILE])
    engine.project_store.projects[view.path] = view.model_copy(update={"name": HOSTILE})
    engine.add_run(simulation.made)
    made = simulation.made
    made.groups = [group.model_copy(update={"title": HOSTILE}) for group in made.groups]
    made.trajectories = [
        one.model_copy(update={"title": HOSTILE, "scenario_id": HOSTILE})
        for one in made.trajectories
    ]

    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            studio.session.open_project(str(engine.workspace / "inbox-scout"))
            await until(lambda: studio.session.project.path)
            tips, hostile = 0, 0
            for key in studio.pages:
                studio.window.show_page(key)
                await asyncio.sleep(0.6)
                for tip in tips_of(studio.window):
                    tips += 1
                    hostile += "img" in tip
                    assert "<img" not in tip, tip
                    assert "<b>" not in tip, tip
                for label in studio.window.findChildren(QLabel):
                    plain = label.textFormat() == Qt.TextFormat.PlainText
                    assert plain or "<img" not in label.text(), label.text()
            assert hostile, "no tooltip has the external text"
            print(f"{tips} tips, {hostile} of them with external text")

    run(job())


def tips_of(window: QWidget) -> list[str]:
    """Return the tooltips of all widgets, and of all cells of their tables and lists."""
    tips = [widget.toolTip() for widget in window.findChildren(QWidget)]
    for view in window.findChildren(QAbstractItemView):
        model: Any = view.model()
        tips += cell_tips(model) if model is not None else []
    return [tip for tip in tips if tip]


def cell_tips(model: QAbstractItemModel) -> list[str]:
    role = Qt.ItemDataRole.ToolTipRole
    columns = model.columnCount(ROOT) if isinstance(model, QAbstractTableModel) else 1
    cells = [
        model.index(row, column).data(role)
        for row in range(min(20, model.rowCount(ROOT)))
        for column in range(columns)
    ]
    return [cell for cell in cells if isinstance(cell, str)]
