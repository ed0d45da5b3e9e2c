"""Help is there for every metric, and opens in the window."""

import pytest
from PySide6.QtWidgets import QListWidget
from pytestqt.qtbot import QtBot

from engine.protocol.config.presets import PRESETS
from engine.protocol.config.tracking import TRACKERS, VARIABLES
from engine.protocol.records.art_names import NAMES
from engine.protocol.records.metrics import METRICS
from studio.runtime.paths import resource
from studio.shell.help import GuideBrowser, HelpDialog, help_pages
from studio.store.servers.servers import STOPPED, WHY
from studio.theme.theme import Theme


@pytest.fixture
def dialog(qtbot: QtBot, qapp) -> HelpDialog:  # type: ignore[no-untyped-def]
    Theme.install(qapp, mode="dark")
    dialog = HelpDialog(None)  # type: ignore[arg-type]
    qtbot.addWidget(dialog)
    return dialog


def test_every_page_shows(dialog: HelpDialog) -> None:
    titles, browser = dialog.findChild(QListWidget), dialog.findChild(GuideBrowser)
    assert titles.count() == len(list(resource("help").glob("*.md")))
    for row in range(titles.count()):
        titles.setCurrentRow(row)
        assert browser.toPlainText().startswith(titles.item(row).text())


def test_every_metric_is_explained(dialog: HelpDialog) -> None:
    browser, titles = dialog.findChild(GuideBrowser), dialog.findChild(QListWidget)
    titles.setCurrentRow(2)
    text = browser.toPlainText()
    for metric in METRICS:
        assert metric.key.replace("*", "NAME") in text
        assert metric.words in text
        assert metric.worry in text
    assert "{{" not in text


def test_every_method_is_explained() -> None:
    text = (resource("help") / "05-methods.md").read_text()
    assert all(f"| {name} | {preset.when} |" in text for name, preset in PRESETS.items())


def test_every_trouble_with_a_server_is_explained() -> None:
    text = (resource("help") / "12-servers.md").read_text()
    assert all(f"| {words} | " in text for words in {*WHY.values(), *STOPPED.values()})


def test_every_name_of_art_is_in_the_table() -> None:
    page = next(page for page in help_pages() if page.startswith("# Trackers"))
    for name in NAMES:
        assert f"| {name.art.replace('*', 'NAME')} | " in page
    assert all(f"[track.{name}]" in page for name in TRACKERS)
    for variable in (one for names in VARIABLES.values() for one in names):
        assert variable in page
