"""Help is there for every metric, and opens in the window."""

import re

import pytest
from PySide6.QtWidgets import QListWidget
from pytestqt.qtbot import QtBot

from engine.clock import Clock
from engine.loop import describe
from engine.protocol.algorithm import GroupMean
from engine.protocol.presets import PRESETS
from studio.help import GuideBrowser, HelpDialog
from studio.paths import resource
from studio.theme import Theme
from tests.engine.store.test_store import trajectory


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


def test_every_metric_is_explained() -> None:
    text = (resource("help") / "3-metrics.md").read_text()
    known = set(re.findall(r"[a-z0-9_]+/[A-Za-z0-9_]+|[a-z_]+", text))
    said = describe([[trajectory(n) for n in range(8)]], GroupMean(), {}, Clock())
    for name in said:
        stem = re.sub(r"^(reward/part|time_s)/(?!step).*", r"\1", name)
        end = name.rpartition("_")[2]
        assert name in known or stem.rpartition("/")[2] in known or f"_{end}" in text, name


def test_every_method_is_explained() -> None:
    text = (resource("help") / "5-methods.md").read_text()
    assert all(f"| {name} | {preset.when} |" in text for name, preset in PRESETS.items())
