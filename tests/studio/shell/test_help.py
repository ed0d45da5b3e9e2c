"""Documentation pages: structure, links and vocabulary; the help window: groups, links, search."""

import re

import pytest
from PySide6.QtCore import Qt, QUrl
from PySide6.QtWidgets import QListView
from pytestqt.qtbot import QtBot

from engine.protocol.config.presets import PRESETS
from engine.protocol.config.tracking import TRACKERS, VARIABLES
from engine.protocol.records.art_names import NAMES
from engine.protocol.records.metrics import METRICS
from studio.shell.help import HELP_OF_PAGE, GuideBrowser, HelpDialog
from studio.store.servers.servers import STOPPED, WHY
from studio.text.help_pages import FENCE, Page, help_folder, load_pages, resolve, search, slug
from studio.theme.theme import Theme
from studio.widgets.controls.inputs import SearchInput

GROUPS = ["", "Start", "How-to", "Reference", "Explanation"]
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
BANNED = re.compile(
    r"\b(attempts?|tries|practi[sc]e[sd]?|taught|teach(es)?|alike|goes on|go(es)? along|let go|"
    r"told|heard|said|asked|spoken|looks?|words?|letters?|living|beside|ours|elsewhere|at home|"
    r"strike|take back|trials?)\b",
    re.IGNORECASE,
)
"""Words of the glossary that have a standard name."""

PAGES = {page.path: page for page in load_pages()}


def headings(page: Page) -> list[tuple[int, str]]:
    return [(len(marks), text) for marks, text in HEADING.findall(FENCE.sub("", page.text))]


@pytest.fixture
def dialog(qtbot: QtBot, qapp) -> HelpDialog:  # type: ignore[no-untyped-def]
    Theme.install(qapp, mode="dark")
    dialog = HelpDialog(None)  # type: ignore[arg-type]
    qtbot.addWidget(dialog)
    return dialog


def titles(dialog: HelpDialog) -> list[str]:
    model = dialog.findChild(QListView).model()
    rows = [model.index(row, 0) for row in range(model.rowCount())]
    return [row.data() for row in rows if row.flags() & Qt.ItemFlag.ItemIsSelectable]


def shown_text(dialog: HelpDialog) -> str:
    return dialog.findChild(GuideBrowser).toPlainText()


def test_navigation_lists_every_page_once_in_its_group() -> None:
    files = {str(file.relative_to(help_folder())) for file in help_folder().rglob("*.md")}
    assert files == set(PAGES)
    assert len(load_pages()) == len(PAGES)
    assert list(dict.fromkeys(page.group for page in PAGES.values())) == GROUPS
    for page in PAGES.values():
        assert page.group.lower() == page.path.rpartition("/")[0]


@pytest.mark.parametrize("path", PAGES)
def test_page_has_one_title_and_plain_headings(path: str) -> None:
    page_headings = headings(PAGES[path])
    assert [level for level, _ in page_headings].count(1) == 1
    assert page_headings[0] == (1, PAGES[path].title)
    for _, text in page_headings:
        assert not BANNED.search(text), text
    assert "{{" not in PAGES[path].text


@pytest.mark.parametrize("path", PAGES)
def test_links_of_page_resolve(path: str) -> None:
    for link in PAGES[path].links():
        target, anchor = resolve(PAGES[path], link)
        assert target in PAGES, link
        anchors = {slug(text) for _, text in headings(PAGES[target])}
        assert not anchor or anchor in anchors, link


def test_page_is_linked_from_another_page() -> None:
    linked = {
        resolve(page, link)[0]
        for page in PAGES.values()
        for link in page.links()
        if resolve(page, link)[0] != page.path
    }
    assert set(PAGES) - linked <= {"index.md"}


def test_search_finds_titles_first_and_text_in_any_case() -> None:
    pages = list(PAGES.values())
    assert search(pages, "troubleshooting")[0].title == "Troubleshooting"
    assert [page.path for page in search(pages, "MERGED Safetensors gguf")] == ["how-to/export.md"]
    assert search(pages, "zebra crossing") == []
    assert search(pages, " ") == pages


def test_dialog_shows_every_page(dialog: HelpDialog) -> None:
    assert titles(dialog) == [page.title for page in PAGES.values()]
    for path, page in PAGES.items():
        dialog.show_path(path)
        assert shown_text(dialog).startswith(page.title)


def test_groups_cannot_be_selected_in_navigation(dialog: HelpDialog) -> None:
    model = dialog.findChild(QListView).model()
    rows = [model.index(row, 0) for row in range(model.rowCount())]
    groups = [row.data() for row in rows if not row.flags() & Qt.ItemFlag.ItemIsSelectable]
    assert groups == GROUPS[1:]


def test_link_opens_page_and_back_returns(dialog: HelpDialog) -> None:
    dialog.show_path("how-to/reward-design.md")
    dialog.findChild(GuideBrowser).anchorClicked.emit(QUrl("human-labels.md"))
    assert dialog.page.path == "how-to/human-labels.md"
    assert dialog.findChild(QListView).currentIndex().data() == "Human labels"
    dialog.go_back()
    assert dialog.page.path == "how-to/reward-design.md"
    with pytest.raises(KeyError):
        dialog.show_path("how-to/nothing.md")


def test_every_studio_page_has_help(qtbot: QtBot, qapp) -> None:  # type: ignore[no-untyped-def]
    Theme.install(qapp, mode="light")
    for path in HELP_OF_PAGE.values():
        opened = HelpDialog(None, path)  # type: ignore[arg-type]
        qtbot.addWidget(opened)
        assert opened.page.path == path
        assert shown_text(opened).startswith(PAGES[path].title)


def test_anchor_scrolls_to_heading(dialog: HelpDialog, qtbot: QtBot) -> None:
    dialog.show()
    dialog.show_path("how-to/human-labels.md", "command-line")
    assert dialog.findChild(GuideBrowser).verticalScrollBar().value() > 0


def test_search_filters_pages_and_highlights_matches(dialog: HelpDialog, qtbot: QtBot) -> None:
    field, browser = dialog.findChild(SearchInput), dialog.findChild(GuideBrowser)
    qtbot.keyClicks(field, "loginctl")
    qtbot.waitUntil(lambda: titles(dialog) == ["Remote GPU over SSH"])
    assert dialog.page.title == "Remote GPU over SSH"
    marked = browser.extraSelections()
    assert [mark.cursor.selectedText() for mark in marked] == ["loginctl"]
    field.clear()
    qtbot.waitUntil(lambda: len(titles(dialog)) == len(PAGES))
    assert browser.extraSelections() == []


def test_every_metric_is_documented(dialog: HelpDialog) -> None:
    dialog.show_path("reference/metrics.md")
    for metric in METRICS:
        assert metric.key.replace("*", "NAME") in shown_text(dialog)
        assert metric.words in shown_text(dialog)
        assert metric.worry in shown_text(dialog)


def test_every_preset_is_documented() -> None:
    text = PAGES["reference/algorithms.md"].text
    assert all(f"| {name} | {preset.when} |" in text for name, preset in PRESETS.items())


def test_every_ssh_error_is_documented() -> None:
    text = PAGES["reference/ssh-errors.md"].text
    assert all(f"| {words} | " in text for words in {*WHY.values(), *STOPPED.values()})


def test_trackers_and_metric_names_are_documented() -> None:
    for name in NAMES:
        assert f"| {name.art.replace('*', 'NAME')} | " in PAGES["reference/metric-names.md"].text
    page = PAGES["how-to/experiment-tracking.md"].text
    assert all(f"[track.{name}]" in page for name in TRACKERS)
    for variable in (one for names in VARIABLES.values() for one in names):
        assert variable in page
