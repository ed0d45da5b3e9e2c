"""Filter bar above groups and table: expression, its mistake in one sentence, number of matches."""

from PySide6.QtCore import Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QWidget

from engine.protocol.problems import Refused
from engine.protocol.requests.filters import parse_filter
from studio.pages.trajectories.filters.filter_input import FilterInput
from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.controls.buttons import Button, IconButton
from studio.widgets.layouts import hbox, vbox
from studio.widgets.painting.paint import painting
from studio.widgets.text.text import Text


class FilterBar(QWidget):
    """Filter bar. Emits `filter_changed(text)` for valid expressions; its owner serves the
    buttons."""

    filter_changed = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.input = FilterInput()
        self.saved = IconButton("list-filter", "Saved filters")
        self.columns = Button("Columns", "quiet", icon="columns-3", height=28, menu_arrow=True)
        self.export = Button("Export", "quiet", icon="download", height=28, menu_arrow=True)
        self._count = Text("", "label", 400, "muted")
        self._mistake = Text("", "label", 400, "bad", wrap=True)
        line = hbox((self.input, 1), self._count, self.saved, self.columns, self.export, spacing=8)
        column = vbox(parent=self, margins=(12, 6, 16, 7), spacing=4)
        column.addLayout(line)
        column.addWidget(self._mistake)
        self._mistake.hide()
        self.input.search_changed.connect(self._typed)

    def set_filter(self, text: str) -> None:
        """Show an expression, without emitting."""
        if text != self.input.text():
            self.input.setText(text)
        self._show_mistake(text)

    def set_count(self, total: int) -> None:
        """Show the number of trajectories that match."""
        self._count.set_words(formatting.plural(total, "trajectory", "trajectories"))
        self.export.setEnabled(total > 0 or self.export.is_busy())

    def _typed(self, text: str) -> None:
        if self._show_mistake(text):
            self.filter_changed.emit(text)

    def _show_mistake(self, text: str) -> bool:
        """Show what is wrong with an expression; returns whether it is valid."""
        words = ""
        try:
            parse_filter(text)
        except Refused as error:
            words = str(error.problem)
        self._mistake.set_words(words)
        self._mistake.setVisible(bool(words))
        self.input.set_problem(bool(words))
        return not words

    def paintEvent(self, event: QPaintEvent) -> None:
        with painting(self) as painter:
            painter.fillRect(0, self.height() - 1, self.width(), 1, theme().color("border"))
