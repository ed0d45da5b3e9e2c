"""Stacked bar of shares in one row, with a label before it and a figure after it."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.painting import paint
from studio.widgets.tables.meter import bar_between


@dataclass(frozen=True)
class Stretch:
    """Segment: label, share of the whole, colour token, whether hatched."""

    words: str
    share: float
    token: str
    hatched: bool = False


class StackRow(QWidget):
    """Stacked bar: `StackRow("Memory").set_stretches([Stretch("this run", 0.5, "plot-1")], "24 / 48
    GB")`."""

    def __init__(
        self,
        words: str,
        *,
        height: int = 28,
        bar_px: int = 6,
        words_px: int = 68,
        figure_px: int = 92,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._words, self._figure, self._tone = words, formatting.ABSENT, "text"
        self._bar_px, self._words_px, self._figure_px = bar_px, words_px, figure_px
        self._stretches: tuple[Stretch, ...] = ()
        self._limit = 1.0
        self.setFixedHeight(height)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_words(self, words: str) -> None:
        self._words = words
        self.update()

    def set_stretches(
        self, stretches: Sequence[Stretch], figure: str, tone: str = "text", limit: float = 1.0
    ) -> None:
        """Set the segments from left to right; beyond a total share of 1 they are cut off. `figure`
        is the text at the end; a `limit` below 1 is marked by a line at this share."""
        self._limit = limit
        self._stretches, self._figure, self._tone = tuple(stretches), figure, tone
        self.setAccessibleName(f"{self._words} {figure}")
        texts = (f"{s.words} {formatting.percent(s.share)}" for s in self._stretches if s.words)
        self.setAccessibleDescription(", ".join(texts))
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(240, self.height())

    def bar(self) -> QRectF:
        """Return the rectangle of the bar, which ends before the figure."""
        return bar_between(self, self._words_px, self._figure, self._figure_px, self._bar_px)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            row = QRectF(self.rect())
            words = row.adjusted(0, 0, self._words_px - row.width(), 0)
            paint.text(painter, words, self._words, "muted", "label", 400)
            bar = self.bar()
            paint_segments(painter, bar, self._stretches)
            if self._limit < 1:
                x = bar.left() + self._limit * bar.width()
                mark = QRectF(x - 1, bar.top() - 3, 2, self._bar_px + 6)
                painter.fillRect(mark, theme().color("bad"))
            paint.text(
                painter, row, self._figure, self._tone, "mono-small", align=paint.RIGHT, elide=False
            )


def paint_segments(painter: QPainter, bar: QRectF, stretches: Sequence[Stretch]) -> None:
    """Draw the segments of a stacked bar over its background; each has a share of its width."""
    clip = QPainterPath()
    clip.addRoundedRect(bar, 2, 2)
    painter.save()
    painter.setClipPath(clip)
    painter.fillRect(bar, theme().color("border"))
    x = bar.left()
    for stretch in stretches:
        width = stretch.share * bar.width()
        if width <= 0:
            continue
        cell = QRectF(x, bar.top(), max(1.0, width - 1), bar.height())
        if stretch.hatched:
            paint.hatch(painter, cell, stretch.token, 0)
        else:
            painter.fillRect(cell, theme().color(stretch.token))
        x += width
    painter.restore()
