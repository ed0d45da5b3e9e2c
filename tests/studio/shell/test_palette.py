"""Command palette and shortcut sheet: search, edge, and what they say when nothing matches."""

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from studio.actions.actions import Actions
from studio.shell.palette import CommandPalette, ShortcutSheet
from studio.theme.theme import Theme, theme


@pytest.fixture
def window(qapp: QApplication, qtbot: QtBot) -> QWidget:
    Theme.install(qapp, "dark")
    host = QWidget()
    host.resize(960, 640)
    qtbot.addWidget(host)
    host.show()
    return host


@pytest.fixture
def palette(window: QWidget) -> Iterator[CommandPalette]:
    opened = CommandPalette(window, Actions(window))
    opened.show()
    yield opened
    opened.close()


def test_palette_says_when_nothing_matches(palette: CommandPalette) -> None:
    QTest.keyClicks(palette._input, "qqq")
    assert not palette._list.isVisible()
    assert palette._none.isVisible()
    assert palette._none.words().startswith("No command matches “qqq”.")
    QTest.keyClick(palette._input, Qt.Key.Key_Return)
    assert palette.isVisible(), "nothing to run"
    palette._input.clear()
    QTest.keyClicks(palette._input, "theme")
    assert palette._list.isVisible()
    assert not palette._none.isVisible()


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_palette_has_an_edge(palette: CommandPalette, scheme: str) -> None:
    theme().set_mode(scheme)
    image = palette.grab().toImage()
    middle = palette.width() // 2
    bottom = palette.height() - 1
    for x, y in (
        (middle, 0),
        (middle, bottom),
        (0, bottom // 2),
        (palette.width() - 1, bottom // 2),
    ):
        assert image.pixelColor(x, y).name() == theme().color("border-strong").name(), (x, y)
    assert image.pixelColor(middle, 4).name() == theme().color("raised").name()


def test_shortcuts_are_searched_by_action_key_and_page(window: QWidget, qtbot: QtBot) -> None:
    sheet = ShortcutSheet(window)
    sheet.open()
    shortcuts = sheet.shortcuts
    assert sheet.focusWidget() is shortcuts.search
    rows = shortcuts.table.model().rowCount()
    for words, action in (("palette", "Command palette"), ("ctrl+k", "Command palette")):
        shortcuts.search.setText(words)
        qtbot.waitUntil(lambda: shortcuts.table.model().rowCount() == 1)
        assert shortcuts.table.model().index(0, 0).data() == action
    shortcuts.search.setText("trajectories")
    qtbot.waitUntil(lambda: 1 < shortcuts.table.model().rowCount() < rows)
    shortcuts.search.setText("qqq")
    qtbot.waitUntil(lambda: shortcuts._none.isVisible())
    assert shortcuts._none.words() == "No shortcut matches “qqq”."
    assert not shortcuts.table.isVisible()
    QTest.keyClick(shortcuts.search, Qt.Key.Key_Escape)
    assert shortcuts.table.model().rowCount() == rows
    sheet.close()
