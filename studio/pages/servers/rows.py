"""Row of a server in the list: state, actions, progress and problem."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from studio.pages.offer_line import OfferLine
from studio.store.servers.server_rows import Row
from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.tables.meter import Meter
from studio.widgets.tables.status_dot import Dot
from studio.widgets.text.text import Text


class HostRow(QWidget):
    """Row of a server: `show_row(row)`; emits `pressed(verb)`, including `open`."""

    pressed = Signal(str)

    def __init__(self, first: bool, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._first = first
        self._dot, self._name = Dot(), Text("", "body", 600)
        self._words = Text("", "label", 400, "muted", elide=True)
        self._facts = Text("", "caption", 400, "faint", elide=True)
        self._problem = Text("", "caption", 400, "bad", wrap=True, selectable=True)
        self._share = Text("", "mono-small", 400, "muted")
        self._meter = Meter("Progress", "accent", 4)
        self._offers = OfferLine()
        self._open = Button("Open", "quiet", icon="chevron-right", height=28)
        self._open.clicked.connect(lambda: self.pressed.emit("open"))
        self._build()

    def paintEvent(self, event: object) -> None:
        if not self._first:
            with paint.painting(self) as painter:
                painter.fillRect(0, 0, self.width(), 1, theme().color("border"))

    def show_row(self, row: Row) -> None:
        self.setAccessibleName(f"{row.name}, {row.words.text}")
        self._dot.set_state(row.words.dot)
        self._name.set_words(row.name)
        self._words.set_words(row.words.text)
        self._facts.set_words(row.facts)
        self._problem.set_words(row.problem)
        self._problem.setVisible(bool(row.problem))
        share = row.progress[1] if row.progress else None
        self._share.set_words(formatting.percent(share) if share is not None else "")
        self._meter.setVisible(share is not None)
        self._meter.set_share(share or 0.0)
        self._open.setAccessibleName(f"Open {row.name}")
        for button in self._offers.show_offers(row.offers, row.name):
            verb = button.property("verb")
            button.clicked.connect(lambda _=False, verb=verb: self.pressed.emit(verb))

    def _build(self) -> None:
        head = hbox(
            self._dot,
            self._name,
            (self._words, 1),
            self._share,
            self._offers,
            self._open,
            spacing=8,
        )
        below = vbox(self._facts, self._problem, self._meter, margins=(18, 0, 0, 0), spacing=4)
        vbox(head, below, parent=self, margins=(0, 4 if self._first else 8, 0, 10), spacing=2)
