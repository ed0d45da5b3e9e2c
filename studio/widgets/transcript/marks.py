"""Marks over the text of a transcript: hits of a search, a cited passage, the token under the
pointer. Rectangles are in coordinates of the row."""

from collections.abc import Sequence

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen

from studio.theme.theme import theme
from studio.widgets.painting import paint
from studio.widgets.transcript.hits import Hit


def paint_hits(
    painter: QPainter, rects: Sequence[Sequence[Sequence[QRectF]]], row: int, current: Hit | None
) -> None:
    """Mark the hits in a row, whose `rects` are given by block and hit; `current` stands out."""
    fill = QColor(theme().color("warn"))
    for block, found in enumerate(rects):
        for nth, lines in enumerate(found):
            now = current is not None and current[:3] == (row, block, nth)
            fill.setAlphaF(0.45 if now else 0.22)
            for rect in lines:
                painter.fillRect(rect.adjusted(-1, 0, 1, 0), fill)
                if now:
                    paint.box(painter, rect.adjusted(-2, -1, 2, 1), None, "warn", 3)


def paint_passage(painter: QPainter, rects: Sequence[QRectF]) -> None:
    """Mark a passage that the judge cites."""
    for rect in rects:
        painter.fillRect(rect.adjusted(0, rect.height() - 2, 0, 0), theme().color("judge"))
        paint.box(painter, rect.adjusted(-2, -1, 2, 1), None, "judge", 3)


def paint_token(painter: QPainter, rects: Sequence[QRectF]) -> None:
    """Frame a token."""
    painter.setPen(QPen(theme().color("text"), 1.5))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    for rect in rects:
        painter.drawRoundedRect(rect.adjusted(-1, 0, 1, 0), 3, 3)
