"""Legend of a chart card: a mark and a name per series, as many as fit."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.theme.plain_tooltips import plain_tip, set_tip
from studio.theme.theme import theme
from studio.widgets.charts.marks import diamond
from studio.widgets.painting import paint

_MARK, _GAP, _LEAST_GAP = 12, 13, 5.0


@dataclass(frozen=True)
class Entry:
    """Entry: name, plot token, mark (line, dash, square, band, diamond)."""

    words: str
    token: str
    mark: str = "line"


class Legend(QWidget):
    """Legend: `set_entries([Entry("training", "plot-1")])`, right-aligned."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._entries: tuple[Entry, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)

    def set_entries(self, entries: Sequence[Entry]) -> None:
        self._entries = tuple(entries)
        self.setAccessibleName("Legend: " + ", ".join(entry.words for entry in entries))
        self.updateGeometry()
        self.update()

    def _width(self, entry: Entry) -> float:
        return _MARK + 5 + paint.text_width(entry.words, "caption")

    def sizeHint(self) -> QSize:
        width = sum(self._width(entry) + _GAP for entry in self._entries) - _GAP
        return QSize(max(0, round(width) + 1), 20)

    def minimumSizeHint(self) -> QSize:
        return QSize(0, 20)

    def paintEvent(self, event: QPaintEvent) -> None:
        needed = sum(self._width(entry) for entry in self._entries)
        gaps = max(1, len(self._entries) - 1)
        gap = min(float(_GAP), max(_LEAST_GAP, (self.width() - needed) / gaps))
        shown: list[Entry] = []
        room = float(self.width()) + 1
        for entry in self._entries:
            if room < self._width(entry):
                break
            shown.append(entry)
            room -= self._width(entry) + gap
        x = room + gap if shown else 0.0
        hidden = len(shown) < len(self._entries)
        names = ", ".join(entry.words for entry in self._entries) if hidden else ""
        if plain_tip(names) != self.toolTip():
            set_tip(self, names)
        with paint.painting(self) as painter:
            for entry in shown:
                self._paint_mark(painter, entry, x)
                words = QRectF(x + _MARK + 5, 0, self._width(entry), self.height())
                paint.text(painter, words, entry.words, "muted", "caption", elide=False)
                x += self._width(entry) + gap

    def _paint_mark(self, painter: QPainter, entry: Entry, x: float) -> None:
        y, color = self.height() / 2, theme().color(entry.token)
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
