"""Floating tooltip of charts, strips and tokens: next to its point, never over it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from PySide6.QtCore import QPoint, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QWidget

from studio.widgets.painting import paint
from studio.widgets.text.phrase import Span

_PADDING = 10
_LINE = 17
_AWAY = 12


@dataclass(frozen=True)
class TipText:
    """Content: first line left and right, then lines of spans, last the action of a click."""

    title: str
    aside: str = ""
    lines: Sequence[Sequence[Span]] = field(default_factory=tuple)
    action: str = ""


class Tip(QWidget):
    """Tooltip, one per window; ignores mouse and focus."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._text = TipText("")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.hide()

    @classmethod
    def of(cls, widget: QWidget) -> "Tip":
        """Return the tooltip widget of the window of `widget`, created on first use."""
        window = widget.window()
        tip = window.findChild(cls, options=Qt.FindChildOption.FindDirectChildrenOnly)
        return tip if tip is not None else cls(window)

    def show_beside(self, widget: QWidget, point: QPoint, text: TipText) -> None:
        """Show `text` as a tooltip next to a point of a widget, on the side with room."""
        self._text = text
        self.setAccessibleName(self.words())
        size = self.sizeHint()
        window = widget.window()
        anchor = widget.mapTo(window, point)
        self.setGeometry(QRect(place_beside(anchor, size, window.rect()), size))
        self.show()
        self.raise_()
        self.update()

    def words(self) -> str:
        """Text of the tooltip, line by line."""
        lines = ["".join(span.words for span in line) for line in self._text.lines]
        parts = [f"{self._text.title} {self._text.aside}".strip(), *lines, self._text.action]
        return "\n".join(part for part in parts if part)

    def sizeHint(self) -> QSize:
        text = self._text
        gap = 24 if text.aside else 0
        head = (
            paint.text_width(text.title, "label", 600)
            + gap
            + paint.text_width(text.aside, "caption")
        )
        widths = [head, paint.text_width(text.action, "caption", 500)]
        widths += [
            sum(paint.text_width(span.words, "caption", span.weight or 400) for span in line)
            for line in text.lines
        ]
        rows = 1 + len(text.lines) + bool(text.action)
        return QSize(round(max(widths)) + 2 * _PADDING + 2, rows * _LINE + 2 * _PADDING - 3)

    def paintEvent(self, event: QPaintEvent) -> None:
        text = self._text
        with paint.painting(self) as painter:
            paint.box(painter, self.rect(), "raised", "border-strong", 6)
            row = QRectF(_PADDING, _PADDING - 2, self.width() - 2 * _PADDING, _LINE)
            paint.text(painter, row, text.title, "text", "label", 600)
            paint.text(painter, row, text.aside, "faint", "caption", align=paint.RIGHT)
            for line in text.lines:
                row.translate(0, _LINE)
                rest = QRectF(row)
                for span in line:
                    used = paint.text(
                        painter,
                        rest,
                        span.words,
                        span.tone,
                        "caption",
                        span.weight or 400,
                        elide=False,
                    )
                    rest.setLeft(rest.left() + used)
            row.translate(0, _LINE)
            paint.text(painter, row, text.action, "accent", "caption", 500)


def place_beside(anchor: QPoint, size: QSize, room: QRect) -> QPoint:
    """Top left corner of a tooltip of this size: left or right of the anchor point, inside the
    rectangle `room`, never over the anchor."""
    right = anchor.x() + _AWAY
    left = anchor.x() - _AWAY - size.width()
    x = right if right + size.width() <= room.right() - 4 else left
    x = max(room.left() + 4, min(x, room.right() - 4 - size.width()))
    y = anchor.y() + _AWAY
    if y + size.height() > room.bottom() - 4:
        y = anchor.y() - _AWAY - size.height()
    y = max(room.top() + 4, y)
    covered = QRect(QPoint(x, y), size).contains(anchor)
    if covered:
        y = max(0, anchor.y() - _AWAY - size.height())
    return QPoint(x, y)
