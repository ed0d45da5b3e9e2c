"""List of the keyboard shortcuts with a search field, in Settings and in the shortcut sheet (?)."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from studio.models.shortcuts import ShortcutTableModel
from studio.widgets.controls.inputs import SearchInput
from studio.widgets.layouts import vbox
from studio.widgets.tables.table import Table
from studio.widgets.text.text import Text


class ShortcutList(QWidget):
    """Search field and table of the shortcuts."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.search = SearchInput("Search shortcuts", "Search by action, key or page")
        self.table = Table("Keyboard shortcuts")
        self._model = ShortcutTableModel(parent=self.table)
        self.table.setModel(self._model)
        self.table.set_column(0, None)
        self.table.set_column(1, 160, "strong")
        self.table.set_column(2, 140)
        self._none = Text("", "body", tone="muted", wrap=True)
        self._none.setAlignment(Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignTop)
        self._none.setContentsMargins(0, 24, 0, 0)
        self._none.hide()
        head = vbox(self.search, margins=(12, 12, 12, 8))
        vbox(head, (self.table, 1), (self._none, 1), parent=self, spacing=0)
        self.search.search_changed.connect(self._search)

    def _search(self, words: str) -> None:
        found = self._model.search(words)
        self.table.setVisible(found)
        self._none.setVisible(not found)
        self._none.set_words(f"No shortcut matches “{words.strip()}”.")
