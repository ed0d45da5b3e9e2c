"""The grid of chart cards: a column under 620, two up to 1 320, three above; 180 high at least."""

from collections.abc import Sequence

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QScrollArea, QWidget

GAP = 12
LEAST_HEIGHT = 180
GOOD_HEIGHT = 232


def columns_for(width: int) -> int:
    """How many charts fit beside each other."""
    return 1 if width < 620 else 2 if width <= 1320 else 3


def places(count: int, width: int, height: int) -> list[QRect]:
    """Equal cells in rows that fill the height where it is enough; else they are 180 and scroll."""
    columns = min(columns_for(width), max(1, count))
    rows = -(-count // columns)
    if not rows:
        return []
    room = (height - GAP * (rows - 1)) // rows
    tall = max(LEAST_HEIGHT, room)
    cells = []
    for index in range(count):
        row, column = divmod(index, columns)
        left = round(column * (width + GAP) / columns)
        right = round((column + 1) * (width + GAP) / columns) - GAP
        cells.append(QRect(left, row * (tall + GAP), right - left, tall))
    return cells


class ChartGrid(QScrollArea):
    """`set_cards(cards)`; `show_full(card)` gives one card all the room until Escape."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._cards: list[QWidget] = []
        self._full: QWidget | None = None
        self._inner = QWidget()
        self._inner.setProperty("transparent", True)
        self.setWidget(self._inner)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        self._inner.setAutoFillBackground(False)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)

    def set_cards(self, cards: Sequence[QWidget]) -> None:
        for card in self._cards:
            if card not in cards:
                card.hide()
        self._cards = list(cards)
        for card in self._cards:
            card.setParent(self._inner)
            card.show()
        self._lay_out()

    def show_full(self, card: QWidget | None) -> None:
        """One card on the full page, and back with None."""
        self._full = None if card is self._full else card
        self._lay_out()

    @property
    def full(self) -> QWidget | None:
        return self._full

    def sizeHint(self) -> QSize:
        return QSize(640, 3 * GOOD_HEIGHT)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_out()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self._full is not None:
            self.show_full(None)
        else:
            super().keyPressEvent(event)

    def _lay_out(self) -> None:
        width, height = self.width(), self.viewport().height()
        shown = [self._full] if self._full is not None else self._cards
        cells = (
            [QRect(0, 0, width, height)]
            if self._full is not None
            else places(len(shown), width, height)
        )
        bottom = max((cell.bottom() + 1 for cell in cells), default=0)
        if bottom > height:  # the scroll bar takes its part
            bar = self.verticalScrollBar().sizeHint().width() + 2
            cells = places(len(shown), width - bar, height)
        self._inner.resize(width, max(bottom, height))
        for card in self._cards:
            card.setVisible(card in shown)
        for card, cell in zip(shown, cells, strict=True):
            card.setGeometry(cell)
