"""A change of the theme repaints every widget at once: its pixels are those of a new widget."""

import numpy as np
import pytest
from numpy.typing import NDArray
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from studio.shell.help import HelpDialog
from studio.theme.theme import Theme
from studio.widgets.charts.view import ChartView
from tests.studio.gallery.pages import PAGES

DRAWN_MS = 300
VISIBLE = 16
"""Difference of a colour channel from which a pixel counts as another one."""


@pytest.fixture
def themes(qapp: QApplication) -> Theme:
    installed = Theme.install(qapp, "dark")
    installed.reduced_motion = True
    return installed


def pixels(widget: QWidget) -> NDArray[np.int16]:
    image = widget.grab().toImage()
    image.convertTo(image.Format.Format_RGB32)
    rows = np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), -1, 4)
    return rows[:, : image.width(), :3].astype(np.int16)


def shown(qtbot: QtBot, name: str) -> QWidget:
    widget = PAGES[name]()
    qtbot.addWidget(widget)
    widget.resize(1440, 1600)
    widget.show()
    QTest.qWait(DRAWN_MS)
    for chart in widget.findChildren(ChartView):
        chart.redraw()
    return widget


@pytest.mark.parametrize("name", sorted(PAGES))
def test_widgets_follow_at_once(themes: Theme, qtbot: QtBot, name: str) -> None:
    before = shown(qtbot, name)
    dark = pixels(before)
    themes.set_mode("light")
    switched = pixels(before)
    before.close()
    fresh = pixels(shown(qtbot, name))
    assert (np.abs(dark - fresh).max(2) > VISIBLE).mean() > 0.5, "another theme"
    assert not (np.abs(switched - fresh).max(2) > VISIBLE).any()


def test_hidden_charts_are_right_when_they_are_shown(themes: Theme, qtbot: QtBot) -> None:
    before = shown(qtbot, "parts")
    before.hide()
    themes.set_mode("light")
    before.show()
    switched = pixels(before)
    before.close()
    fresh = pixels(shown(qtbot, "parts"))
    assert not (np.abs(switched - fresh).max(2) > VISIBLE).any()


def test_help_page_follows_and_keeps_its_place(themes: Theme, qtbot: QtBot) -> None:
    def opened() -> HelpDialog:
        help_window = HelpDialog(host, "reference/project-files.md")
        help_window.open()
        QTest.qWait(DRAWN_MS)
        help_window._browser.verticalScrollBar().setValue(200)
        return help_window

    host = QWidget()
    qtbot.addWidget(host)
    before = opened()
    themes.set_mode("light")
    switched = pixels(before)
    assert before._browser.verticalScrollBar().value() == 200
    before.close()
    fresh = pixels(opened())
    assert not (np.abs(switched - fresh).max(2) > VISIBLE).any()
