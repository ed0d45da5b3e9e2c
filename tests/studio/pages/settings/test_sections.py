"""Sections of Settings: every card is in one, and all are reached by keyboard."""

from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from studio.pages.settings.page import SECTIONS
from studio.widgets.cards.card import Card
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.screenshots.pages import studio_on

TITLES = {
    "engines": ["Engine", "Engines", "Other environments"],
    "servers": ["Remote servers"],
    "clusters": ["Clusters"],
    "machine": ["This machine"],
    "keys": ["Judge keys", "Tracker keys"],
    "labels": ["Labels"],
    "appearance": ["Appearance"],
    "notifications": ["Notifications"],
    "shortcuts": ["Keyboard shortcuts"],
}


def shown(page: Any) -> list[str]:
    """Titles of the visible cards, from top to bottom."""
    cards = [card for card in page.findChildren(Card) if card.header and card.isVisible()]
    cards.sort(key=lambda card: card.mapTo(page, card.rect().topLeft()).y())
    return [card.header.title.words() for card in cards]


def test_arrow_keys_reach_every_section(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            studio.window.show_page("settings")
            page: Any = studio.pages["settings"]
            await until(lambda: shown(page) == TITLES["engines"])  # loaded from the engine
            found = {page.sections.section(): shown(page)}
            for _ in SECTIONS[1:]:
                QTest.keyClick(page.sections, Qt.Key.Key_Down)
                found[page.sections.section()] = shown(page)
            assert found == TITLES
            page.sections.setFocus()
            QTest.keyClick(page.sections, Qt.Key.Key_Home)
            assert page.sections.section() == "engines"
            QTest.keyClick(page.sections, Qt.Key.Key_Tab)
            focused = studio.window.focusWidget()
            assert focused is not None
            assert page._stack.currentWidget().isAncestorOf(focused), "Tab goes into the section"

    run(job())


def test_actions_open_their_section(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            page: Any = studio.pages["settings"]
            for action, section in (
                ("servers.open", "servers"),
                ("clusters.open", "clusters"),
                ("engines.open", "engines"),
                ("engine.doctor", "machine"),
            ):
                studio.window.show_page("home")
                studio.actions.trigger(action)
                assert (studio.window.page, page.sections.section()) == ("settings", section)
            await until(lambda: page._checks)

    run(job())
