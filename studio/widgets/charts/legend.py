"""Legend of a chart card: a mark and a name per series."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.theme.theme import theme
from studio.widgets.charts.marks import diamond
from studio.widgets.painting import paint

_MARK, _GAP, LINE_PX = 12, 13, 20


@dataclass(frozen=True)
class Entry:
    """Entry: name, plot token, mark (line, dash, square, band, diamond)."""

    words: str
    token: str
    mark: str = "line"


class Legend(QWidget):
    """Legend: `set_entries([Entry("training", "plot-1")])`. In one line, right-aligned, or
    (`wraps`) in as many lines as needed."""

    def __init__(self, wraps: bool = False, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._entries: tuple[Entry, ...] = ()
        self._wraps = wraps
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)

    def set_entries(self, entries: Sequence[Entry]) -> None:
        self._entries = tuple(entries)
        self.setAccessibleName("Legend: " + ", ".join(entry.words for entry in entries))
        self._fit()
        self.updateGeometry()
        self.update()

    def needed_px(self) -> int:
        """Return the width of all entries in one line."""
        width = sum(self._width(entry) + _GAP for entry in self._entries) - _GAP
        return max(0, round(width) + 1)

    def _width(self, entry: Entry) -> float:
        return _MARK + 5 + paint.text_width(entry.words, "caption")

    def sizeHint(self) -> QSize:
        return QSize(0 if self._wraps else self.needed_px(), self.height_for(self.width()))

    def minimumSizeHint(self) -> QSize:
        return QSize(0, LINE_PX)

    def height_for(self, width: int) -> int:
        """Return the height of all entries in lines of this width."""
        lines = self._places(width)[-1][2] + 1 if self._wraps and self._entries else 1
        return LINE_PX * lines

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit()

    def _fit(self) -> None:
        if self._wraps and self.height() != self.height_for(self.width()):
            self.setFixedHeight(self.height_for(self.width()))

    def _places(self, width: float) -> list[tuple[Entry, float, int]]:
        """Return each entry with its x and its line."""
        found: list[tuple[Entry, float, int]] = []
        x, line = 0.0, 0
        for entry in self._entries:
            if x and x + self._width(entry) > width:
                x, line = 0.0, line + 1
            found.append((entry, x, line))
            x += self._width(entry) + _GAP
        return found

    def paintEvent(self, event: QPaintEvent) -> None:
        indent = 0.0 if self._wraps else max(0.0, self.width() - self.needed_px())
        with paint.painting(self) as painter:
            for entry, x, line in self._places(self.width() if self._wraps else math.inf):
                y = line * LINE_PX
                self._paint_mark(painter, entry, x + indent, y + LINE_PX / 2)
                words = QRectF(x + indent + _MARK + 5, y, self._width(entry), LINE_PX)
                paint.text(painter, words, entry.words, "muted", "caption", elide=False)

    def _paint_mark(self, painter: QPainter, entry: Entry, x: float, y: float) -> None:
        color = theme().color(entry.token)
        if entry.mark == "diamond":
            painter.setPen(QPen(color, 1.4))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            diamond(painter, QPointF(x + 6, y), 4.4)
        elif entry.mark in ("square", "band"):
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme().color(entry.token, 0.4 if entry.mark == "band" else 1.0))
            painter.drawRoundedRect(QRectF(x + 3, y - 4, 8, 8), 2, 2)
        else:
            pen = QPen(color, 2.2)
            pen.setCapStyle(Qt.PenCapStyle.RoundCap)
            if entry.mark == "dash":
                pen.setCapStyle(Qt.PenCapStyle.FlatCap)
                pen.setDashPattern([2.2, 1.4])
            painter.setPen(pen)
            painter.drawLine(QPointF(x + 2, y), QPointF(x + 11, y))
