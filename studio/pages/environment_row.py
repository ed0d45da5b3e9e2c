"""Row of a Python environment in Settings and Setup."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from studio.pages.offer_line import OfferLine
from studio.store.projects.environments import Row
from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.layouts import STRETCH, add, hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.tables.meter import Meter
from studio.widgets.text.chip import Chip
from studio.widgets.text.text import Text


class EnvironmentRow(QWidget):
    """Row with title, state, contents and size; buttons on the right, progress below."""

    pressed = Signal(str)

    def __init__(self, first: bool, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._first = first
        self._title, self._chip = Text("", "body", 600), Chip()
        self._purpose = Text("", "label", 400, "muted", wrap=True)
        self._facts = Text("", "caption", 400, "faint", wrap=True)
        self._warning = Text("", "caption", 400, "warn", wrap=True)
        self._problem = Text("", "caption", 400, "bad", wrap=True, selectable=True)
        self._progress = Text("", "caption", 400, "muted", elide=True)
        self._share = Text("", "mono-small", 400, "muted")
        self._meter = Meter("Progress", "accent", 4)
        self._buttons = OfferLine()
        self._build()

    def paintEvent(self, event: object) -> None:
        if not self._first:
            with paint.painting(self) as painter:
                painter.fillRect(0, 0, self.width(), 1, theme().color("border"))

    def show_row(self, row: Row) -> None:
        self.setAccessibleName(f"{row.title}, {row.chip[0]}")
        self._title.set_words(row.title)
        self._chip.set_state(*row.chip)
        for text, words in (
            (self._purpose, row.purpose),
            (self._facts, row.facts),
            (self._warning, row.warning),
            (self._problem, row.problem),
            (self._progress, row.progress[0] if row.progress else ""),
            (self._share, formatting.percent(row.progress[1]) if row.progress else ""),
        ):
            text.set_words(words)
            text.setVisible(bool(words))
        self._meter.setVisible(row.progress is not None)
        if row.progress is not None:
            self._meter.set_share(row.progress[1])
        for button in self._buttons.show_offers(row.offers, row.title):
            verb = button.property("verb")
            button.clicked.connect(lambda _=False, verb=verb: self.pressed.emit(verb))

    def _build(self) -> None:
        line = QWidget()
        line.setFixedHeight(28)  # same height with and without buttons
        hbox(self._title, self._chip, STRETCH, self._buttons, parent=line, spacing=8)
        column = vbox(
            line,
            self._purpose,
            self._facts,
            self._warning,
            self._problem,
            parent=self,
            margins=(0, 0 if self._first else 8, 0, 10),
            spacing=4,
        )
        far = hbox((self._progress, 1), self._share, margins=(0, 4, 0, 0))
        add(column, far, self._meter)
