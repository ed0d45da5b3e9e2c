"""Grid of chart cards: 1 column below 620 px, 2 up to 1,320 px, 3 above; at least 196 px high. The
main charts fill the view. Sections with smaller charts follow; the first heading stays visible."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtGui import QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import QScrollArea, QWidget

from studio.widgets.charts.chart_card import ChartCard
from studio.widgets.layouts import hbox
from studio.widgets.text.text import Text

GAP = 12
LEAST_HEIGHT = 196
GOOD_HEIGHT = 232
HEADING = 32


def columns_for(width: int) -> int:
    return 1 if width < 620 else 2 if width <= 1320 else 3


def places(count: int, width: int, height: int, columns: int = 0) -> list[QRect]:
    """Return `count` equal cells in a grid of `columns` (0: as fits the width), in pixels. The rows
    fill the height; at minimum row height, they exceed it."""
    columns = columns or min(columns_for(width), max(1, count))
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


@dataclass(frozen=True)
class Section:
    """Cards under a heading; the main charts have none."""

    title: str
    words: str
    cards: Sequence[QWidget]


def small_columns_for(width: int) -> int:
    """Return the number of columns (1, 2 or 4) for small charts in a width in pixels; they come in
    groups of four."""
    return 1 if width < 620 else 2 if width < 1240 else 4


def stacked(
    counts: Sequence[int], width: int, height: int
) -> tuple[list[list[QRect]], list[QRect]]:
    """Return the cells of each chart section (`counts`: number of charts), and the heading of each
    section but the first, which fills the height. All in pixels."""
    peek = HEADING + GAP if len(counts) > 1 else 0
    main = places(counts[0], width, height - peek)
    cells, headings = [main], []
    top = max((cell.bottom() + 1 for cell in main), default=0) + GAP
    for count in counts[1:]:
        headings.append(QRect(0, top, width, HEADING))
        columns = small_columns_for(width)
        rows = -(-count // columns)
        whole = rows * GOOD_HEIGHT + GAP * (rows - 1)
        found = places(count, width, whole, columns)
        cells.append([cell.translated(0, top + HEADING) for cell in found])
        top += HEADING + whole + GAP
    return cells, headings


class ChartGrid(QScrollArea):
    """Grid of charts: `set_sections(…)`; `show_full(card)` expands a card until Escape."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._cards: list[QWidget] = []
        self._counts: list[int] = [0]
        self._headings: list[QWidget] = []
        self._full: QWidget | None = None
        self._restore = QShortcut(QKeySequence(Qt.Key.Key_Escape), self)
        self._restore.setContext(Qt.ShortcutContext.WindowShortcut)
        self._restore.setEnabled(False)
        self._restore.activated.connect(lambda: self.show_full(None))
        self._inner = QWidget()
        self._inner.setProperty("transparent", True)
        self.setWidget(self._inner)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        self._inner.setAutoFillBackground(False)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)

    def set_sections(self, sections: Sequence[Section]) -> None:
        """Replace all sections; the first one, the main charts, has no heading."""
        cards = [card for section in sections for card in section.cards]
        if self._full not in cards:
            self._full = None
            self._restore.setEnabled(False)
        for card in self._cards:
            if card not in cards:
                card.hide()
        for heading in self._headings:
            heading.deleteLater()
        self._cards, self._counts = cards, [len(section.cards) for section in sections]
        self._headings = [_heading(section) for section in sections[1:]]
        for widget in (*self._headings, *self._cards):
            widget.setParent(self._inner)
            widget.show()
        self._lay_out()

    def show_full(self, card: QWidget | None) -> None:
        """Expand a card to the full page; None, or the same card again, restores the grid. Escape
        restores it too, wherever the focus is."""
        for one in self._cards:
            if isinstance(one, ChartCard):
                one.set_full(one is card and card is not self._full)
        self._full = None if card is self._full else card
        self._restore.setEnabled(self._full is not None)
        self._lay_out()

    def follow_drag(self, card: QWidget, at: QPoint) -> None:
        """Move a card to the place in its section under the pointer (`at`, on the screen)."""
        first = 0
        for count in self._counts:
            section = self._cards[first : first + count]
            if card in section:
                place = self._inner.mapFromGlobal(at)
                over = next((c for c in section if c.geometry().contains(place)), card)
                if over is not card:
                    section.insert(section.index(over), section.pop(section.index(card)))
                    self._cards[first : first + count] = section
                    self._lay_out()
            first += count

    @property
    def cards(self) -> list[QWidget]:
        """Return the cards in their order on the page."""
        return list(self._cards)

    @property
    def full(self) -> QWidget | None:
        """Return the card expanded to the full page, or None."""
        return self._full

    def sizeHint(self) -> QSize:
        return QSize(640, 3 * GOOD_HEIGHT)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_out()

    def _lay_out(self) -> None:
        width, height = self.width(), self.viewport().height()
        for widget in (*self._cards, *self._headings):
            widget.setVisible(self._full is None or widget is self._full)
        if self._full is not None:
            self._inner.resize(width, height)
            self._full.setGeometry(QRect(0, 0, width, height))
            return
        cells, headings = stacked(self._counts, width, height)
        bottom = _bottom(cells)
        if bottom > height:  # leave room for the scroll bar
            bar = self.verticalScrollBar().sizeHint().width() + 2
            cells, headings = stacked(self._counts, width - bar, height)
            bottom = _bottom(cells)
        self._inner.resize(width, max(bottom, height))
        for card, cell in zip(self._cards, (c for part in cells for c in part), strict=True):
            card.setGeometry(cell)
        for heading, room in zip(self._headings, headings, strict=True):
            heading.setGeometry(room)


def _bottom(cells: Sequence[Sequence[QRect]]) -> int:
    return max((cell.bottom() + 1 for part in cells for cell in part), default=0)


def _heading(section: Section) -> QWidget:
    heading = QWidget()
    hbox(
        Text(section.title, "label", 600),
        (Text(section.words, "caption", tone="muted", elide=True), 1),
        parent=heading,
        margins=(2, 0, 0, 0),
        spacing=8,
    )
    return heading
