"""Painting helpers of all drawn widgets; they take token names, never colours."""

from collections.abc import Iterator
from contextlib import contextmanager

from PySide6.QtCore import QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QFontMetricsF, QPainter, QPen, QTextLayout, QTextOption
from PySide6.QtWidgets import QWidget

from studio.theme.theme import theme

LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
CENTER = Qt.AlignmentFlag.AlignCenter


@contextmanager
def painting(widget: QWidget) -> Iterator[QPainter]:
    """Context with an antialiased painter on a widget, which is ended on exit."""
    painter = QPainter(widget)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    try:
        yield painter
    finally:
        painter.end()


def box(
    painter: QPainter,
    rect: QRect | QRectF,
    fill: str | None,
    edge: str | None = None,
    radius: float = 6,
    width: float = 1,
) -> None:
    """Draw a rounded rectangle; `fill` and `edge` are theme colours (None: none), sizes in px."""
    inset = width / 2 if edge else 0
    shape = QRectF(rect).adjusted(inset, inset, -inset, -inset)
    painter.setBrush(theme().color(fill) if fill else Qt.BrushStyle.NoBrush)
    painter.setPen(QPen(theme().color(edge), width) if edge else Qt.PenStyle.NoPen)
    painter.drawRoundedRect(shape, radius, radius)


def text(
    painter: QPainter,
    rect: QRect | QRectF,
    words: str,
    tone: str = "text",
    style: str = "label",
    weight: int | None = None,
    align: Qt.AlignmentFlag = LEFT,
    elide: bool = True,
) -> float:
    """Draw one line of text in the colour `tone` and type style `style`; returns its width."""
    font = theme().font(style, weight)
    metrics = QFontMetricsF(font)
    rect = QRectF(rect)
    shown = elided(metrics, words, rect.width()) if elide else words
    painter.setFont(font)
    painter.setPen(theme().color(tone))
    painter.drawText(rect, align.value | Qt.TextFlag.TextSingleLine.value, shown)
    return metrics.horizontalAdvance(shown)


def paragraph(
    painter: QPainter, rect: QRectF, words: str, tone: str, style: str, most_lines: int
) -> float:
    """Draw plain text wrapped to at most `most_lines` lines, the last one elided; `tone` is a
    colour token, `style` is of the type scale. Returns its height in pixels."""
    font = theme().font(style, 400)
    metrics = QFontMetricsF(font)
    pitch = {"caption": 16.0, "label": 18.0}.get(style, 20.0)
    layout = QTextLayout(words, font)
    option = QTextOption()
    option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
    layout.setTextOption(option)
    lines: list[str] = []
    layout.beginLayout()
    while len(lines) < most_lines and (line := layout.createLine()).isValid():
        line.setLineWidth(max(20.0, rect.width()))
        last = len(lines) == most_lines - 1
        end = len(words) if last else line.textStart() + line.textLength()
        lines.append(words[line.textStart() : end].strip())
    layout.endLayout()
    painter.setFont(font)
    painter.setPen(theme().color(tone))
    for place, shown in enumerate(lines):
        room = QRectF(rect.left(), rect.top() + place * pitch, rect.width(), pitch)
        fitting = elided(metrics, shown, room.width())
        painter.drawText(room, LEFT.value | Qt.TextFlag.TextSingleLine.value, fitting)
    return pitch * len(lines)


def elided(metrics: QFontMetricsF, words: str, width: float) -> str:
    """Text elided at the right end to fit a width."""
    if metrics.horizontalAdvance(words) <= width + 0.5:
        return words
    return metrics.elidedText(words, Qt.TextElideMode.ElideRight, width)


def text_width(words: str, style: str = "label", weight: int | None = None) -> float:
    """Return the width of a line in pixels; `weight` None is that of the style."""
    return QFontMetricsF(theme().font(style, weight)).horizontalAdvance(words)


def icon(painter: QPainter, at: QPointF, name: str, tone: str, size_px: int = 16) -> None:
    """Draw an icon in the colour token `tone`, with its top left corner at a point."""
    ratio = painter.device().devicePixelRatioF()
    painter.drawPixmap(at, theme().pixmap(name, tone, size_px, ratio))


def focus_ring(painter: QPainter, rect: QRect | QRectF, radius: float = 6) -> None:
    """Draw the 2 px focus ring inside a rectangle, for rows and cells."""
    shape = QRectF(rect).adjusted(1, 1, -1, -1)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setPen(QPen(theme().color("focus"), 2))
    painter.drawRoundedRect(shape, radius, radius)


def hatch(painter: QPainter, rect: QRect | QRectF, tone: str, radius: float = 2) -> None:
    """Fill a rectangle with diagonal lines, which mean "skipped" or "hidden"."""
    painter.save()
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QBrush(theme().color(tone), Qt.BrushStyle.BDiagPattern))
    painter.drawRoundedRect(QRectF(rect), radius, radius)
    painter.restore()


def mix(first: QColor, second: QColor, share: float) -> QColor:
    """Mix two colours: `share` 0 gives `first`, 1 gives `second`; for animations."""
    return QColor.fromRgbF(
        first.redF() + (second.redF() - first.redF()) * share,
        first.greenF() + (second.greenF() - first.greenF()) * share,
        first.blueF() + (second.blueF() - first.blueF()) * share,
        first.alphaF() + (second.alphaF() - first.alphaF()) * share,
    )
