"""Main window: sidebar, header, card for a problem of the whole window, stack of pages."""

import base64
import binascii
from collections.abc import Mapping
from functools import partial

from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QCloseEvent, QResizeEvent
from PySide6.QtWidgets import QApplication, QMainWindow, QStackedWidget, QWidget

from engine.protocol.problems import Problem
from studio.pages.page import Page
from studio.pages.trust_bar import TrustBar
from studio.services.settings import SettingsStore
from studio.widgets.cards.error_card import ErrorCard, Remedy
from studio.widgets.cards.toast import Toast
from studio.widgets.layouts import add, hbox, vbox
from studio.widgets.window.page_header import PageHeader
from studio.widgets.window.sidebar import Sidebar

LEAST = (960, 640)
FIRST = (1440, 900)
FOLD_PX = 1180
PROJECTLESS = ("home", "models", "settings")


class MainWindow(QMainWindow):
    """Main window. Closing it asks no question and does not stop training."""

    closing = Signal()
    page_shown = Signal(str)
    remedy_chosen = Signal(str)

    def __init__(self, settings: SettingsStore) -> None:
        super().__init__()
        self.setWindowTitle("Atelier")
        self.setMinimumSize(*LEAST)
        self._settings = settings
        self._folded_by_hand = settings.current.sidebar_folded
        self.sidebar, self.header, self.trust_bar = Sidebar(), PageHeader(), TrustBar()
        self._stack, self._added = QStackedWidget(), dict[str, Page]()
        self.toast = Toast()
        self._pages: Mapping[str, Page] = self._added
        self._card: ErrorCard | None = None
        self._build()
        self.sidebar.place_chosen.connect(self.show_page)
        self._restore()

    @property
    def page(self) -> str:
        shown = self._stack.currentWidget()
        return next((key for key, page in self._added.items() if page is shown), "")

    @property
    def body(self) -> QStackedWidget:
        """Parent of the sheets that belong to no page: the stack of pages."""
        return self._stack

    def set_pages(self, pages: Mapping[str, Page]) -> None:
        """Set the mapping from which `show_page` takes pages by key. If the mapping builds pages on
        first access, it must call `add_page` for each."""
        self._pages = pages

    def add_page(self, key: str, page: Page) -> None:
        self._added[key] = page
        self._stack.addWidget(page)

    def show_page(self, key: str) -> None:
        """Show a page by key (ignored if unknown): call `leave` of the previous page and `enter` of
        the new one."""
        page = self._pages.get(key)
        if page is None:
            return
        before = self._stack.currentWidget()
        if isinstance(before, Page) and before is not page:
            before.leave()
        page.resize(self._stack.size())  # laid out once, at its size
        self._stack.setCurrentWidget(page)
        self.sidebar.set_selected(key)
        page.enter()
        self.page_shown.emit(key)

    def show_problem(self, problem: Problem | None) -> None:
        """Show a problem in a card above the pages; None removes it."""
        if self._card is not None:
            self._slot.removeWidget(self._card)
            self._card.deleteLater()
            self._card = None
        self._slot_box.setVisible(problem is not None)
        if problem is not None:
            self._card = _card(problem)
            self._card.remedy_chosen.connect(self.remedy_chosen)
            self._card.report_requested.connect(partial(_copy, problem))
            self._slot.addWidget(self._card)

    def toggle_sidebar(self) -> None:
        self._folded_by_hand = not self.sidebar.is_folded()
        self._settings.update(sidebar_folded=self._folded_by_hand)
        self._fold()

    def _build(self) -> None:
        right = QWidget()
        column = vbox(parent=right, spacing=0)
        self._slot_box = QWidget()
        self._slot = vbox(parent=self._slot_box, margins=(16, 16, 16, 0))
        self._slot_box.hide()
        add(column, self.header, self._slot_box, self.trust_bar, (self._stack, 1), self.toast)
        whole = QWidget()
        hbox(self.sidebar, (right, 1), parent=whole, spacing=0)
        self.setCentralWidget(whole)

    def _restore(self) -> None:
        self.resize(QSize(*FIRST).boundedTo(self.screen().availableSize()))
        try:
            stored = base64.b64decode(self._settings.current.geometry, validate=True)
        except (ValueError, binascii.Error):
            stored = b""
        if stored:
            self.restoreGeometry(stored)

    def _fold(self) -> None:
        folded = self._folded_by_hand or self.width() < FOLD_PX
        if folded != self.sidebar.is_folded():
            self.sidebar.set_folded(folded)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fold()

    def closeEvent(self, event: QCloseEvent) -> None:
        stored = base64.b64encode(self.saveGeometry().data()).decode()
        self._settings.update(geometry=stored, last_page=self.page or "home")
        super().closeEvent(event)
        self.closing.emit()


def _card(problem: Problem) -> ErrorCard:
    remedies = [
        Remedy("engine.start", "Start the engine again", "Takes a few seconds; runs resume from "
               "their last checkpoint", "Start", "plug-zap"),
        Remedy("engines.open", "Check the engine", "Python interpreter and installed engines",
               "Open Settings", "settings"),
    ]  # fmt: skip
    words = " ".join(part for part in (problem.hint, "Stored data is not lost.") if part)
    return ErrorCard(problem.message, words, remedies, problem.where, log=False)


def _copy(problem: Problem) -> None:
    QApplication.clipboard().setText(f"{problem}\n\n{problem.detail}".strip())
