"""Rows of a transcript that are one line: notes, headings of conversations, and the outcome."""

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter

from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.painting import paint
from studio.widgets.tables.reward_bar import paint_parts
from studio.widgets.transcript.items import Note, Outcome

NOTE_PX, OUTCOME_PX = 44.0, 84.0
HEADING_PX = 16.0
"""Space with a line above a note that begins a section."""


def line_height(item: Note | Outcome) -> float:
    """Height in pixels."""
    if isinstance(item, Outcome):
        return OUTCOME_PX
    return NOTE_PX + (HEADING_PX if item.heading else 0.0)


def paint_line(painter: QPainter, item: Note | Outcome, indent: float, width: float) -> None:
    """Draw a row with its top left corner at the painter's origin. `indent`: left edge of the text
    of messages, `width`: that of the row, both in pixels."""
    if isinstance(item, Note):
        _paint_note(painter, item, indent, width)
    else:
        _paint_outcome(painter, item, indent, width)


def _paint_note(painter: QPainter, item: Note, indent: float, width: float) -> None:
    top = HEADING_PX if item.heading else 0.0
    if item.heading:
        painter.fillRect(QRectF(indent, 12, width - indent, 1), theme().color("border"))
    paint.icon(painter, QPointF(0, top + 14), item.icon, "muted", 14)
    line = QRectF(22, top + 10, width - 22, 22)
    used = paint.text(painter, line, item.title, "text", "label", 600)
    paint.text(painter, line.adjusted(used + 8, 0, 0, 0), item.facts, "muted", "caption")


def _paint_outcome(painter: QPainter, item: Outcome, indent: float, width: float) -> None:
    left = indent
    painter.fillRect(QRectF(left, 12, width - left, 1), theme().color("border"))
    line = QRectF(left, 24, width - left, 24)
    used = paint.text(painter, line, item.title, "text", "body", 600)
    used += 10 + paint.text(
        painter, line.adjusted(used + 10, 0, 0, 0), item.facts, "muted", "label", 400
    )
    x = (
        line.right()
        - paint.text(painter, line, item.reward, "text", "title", 600, paint.RIGHT)
        - 10
    )
    parts = [part for part in item.parts if part.value]
    text = " + ".join(f"{formatting.number(p.value)} {p.name}" for p in parts)
    text = f"{text} =".replace("+ \u2212", "\u2212 ") if parts else ""
    room = QRectF(line.left() + used + 14, 24, max(0.0, x - line.left() - used - 14), 24)
    if paint.text_width(text, "label") <= room.width():  # draw the sum only if it fits completely
        paint.text(painter, room, text, "muted", "label", 400, paint.RIGHT)
    if parts:
        paint_parts(painter, QRectF(left, 58, width - left, 6), parts)
