"""Phrase: a line or paragraph of plain spans, each with its own tone, weight and optional link.
Replaces rich text: nothing is parsed, so untrusted text stays text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QFontMetricsF,
    QKeyEvent,
    QMouseEvent,
    QPaintEvent,
    QResizeEvent,
    QTextCharFormat,
    QTextLayout,
    QTextLine,
    QTextOption,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.theme.theme import theme
from studio.widgets.painting.focus import BY_KEYBOARD
from studio.widgets.painting.paint import focus_ring, painting


@dataclass(frozen=True)
class Span:
    """Text in one tone; `link` is the name emitted by a click."""

    words: str
    tone: str = "muted"
    weight: int | None = None
    mono: bool = False
    link: str = ""


class Phrase(QWidget):
    """Spans on one line (elided at the right end) or wrapped. Links are reached by Tab and
    Enter."""

    link_activated = Signal(str)

    def __init__(
        self,
        spans: Sequence[Span] | str = (),
        style: str = "body",
        parent: QWidget | None = None,
        *,
        wrap: bool = False,
        align: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignLeft,
    ) -> None:
        super().__init__(parent)
        self._spans: tuple[Span, ...] = ()
        self._style = style
        self._wrap = wrap
        self._align = align
        self._focused_link = -1
        self._keyboard = False
        self._lines: list[tuple[QTextLayout, float]] = []
        self._height = 0.0
        policy = QSizePolicy.Policy.Preferred
        self.setSizePolicy(policy, policy if wrap else QSizePolicy.Policy.Fixed)
        if wrap:
            height_for_width = self.sizePolicy()
            height_for_width.setHeightForWidth(True)
            self.setSizePolicy(height_for_width)
        self.set_spans(spans)

    def set_spans(self, spans: Sequence[Span] | str) -> None:
        """Replace all spans; a string is one span in the default tone."""
        self._spans = (Span(spans),) if isinstance(spans, str) else tuple(spans)
        self.setAccessibleName(self.words())
        linked = any(span.link for span in self._spans)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus if linked else Qt.FocusPolicy.NoFocus)
        self.setMouseTracking(linked)
        self.updateGeometry()
        self._lay_out()

    def words(self) -> str:
        """Plain text of all spans."""
        return "".join(span.words for span in self._spans)

    def _line_px(self) -> int:
        return {"body": 20, "label": 18, "caption": 16, "heading": 20}.get(self._style, 20)

    def _layout(self, width: float) -> tuple[QTextLayout, float]:
        layout, height = self._lay_out_words(self.words(), width)
        if self._wrap or layout.lineAt(0).naturalTextWidth() <= width + 1:
            return layout, height
        fits = layout.lineAt(0).xToCursor(max(0.0, width - 12))
        return self._lay_out_words(self.words()[:fits].rstrip() + "\u2026", width)

    def _lay_out_words(self, words: str, width: float) -> tuple[QTextLayout, float]:
        layout = QTextLayout(words, theme().font(self._style, 400))
        option = QTextOption(self._align)
        mode = QTextOption.WrapMode
        option.setWrapMode(mode.WrapAtWordBoundaryOrAnywhere if self._wrap else mode.NoWrap)
        layout.setTextOption(option)
        layout.setFormats(self._formats())
        layout.beginLayout()
        y = 0.0
        while (line := layout.createLine()).isValid():
            line.setLineWidth(max(1.0, width))
            line.setPosition(QPointF(0, y + (self._line_px() - line.height()) / 2))
            y += self._line_px()
        layout.endLayout()
        return layout, max(y, self._line_px())

    def _formats(self) -> list[QTextLayout.FormatRange]:
        formats, start = [], 0
        for span in self._spans:
            form = QTextCharFormat()
            mono = "mono" if self._style != "caption" else "mono-small"
            form.setFont(theme().font(mono if span.mono else self._style, span.weight or 400))
            form.setForeground(theme().color(span.tone))
            span_range = QTextLayout.FormatRange()
            span_range.start, span_range.length, span_range.format = start, len(span.words), form  # type: ignore[misc]
            formats.append(span_range)
            start += len(span.words)
        return formats

    def _lay_out(self) -> None:
        self._lines = []
        self.update()

    def _span_at(self, x: float, y: float) -> int:
        layout, _ = self._layout(self.width())
        for index in range(layout.lineCount()):
            line = layout.lineAt(index)
            if line.y() - 2 <= y <= line.y() + line.height() + 2:
                if not line.naturalTextRect().adjusted(-1, -4, 1, 4).contains(x, y):
                    return -1
                return self._span_of(line.xToCursor(x))
        return -1

    def _span_of(self, position: int) -> int:
        start = 0
        for index, span in enumerate(self._spans):
            start += len(span.words)
            if position < start:
                return index
        return len(self._spans) - 1

    def _links(self) -> list[int]:
        return [index for index, span in enumerate(self._spans) if span.link]

    def _link_rect(self, index: int, layout: QTextLayout) -> QRectF:
        start = sum(len(span.words) for span in self._spans[:index])
        line = layout.lineForTextPosition(start)
        end = start + len(self._spans[index].words)
        left, right = cursor_x(line, start), cursor_x(line, end)
        return QRectF(left - 3, line.y() - 1, right - left + 6, line.height() + 2)

    def hasHeightForWidth(self) -> bool:
        return self._wrap

    def heightForWidth(self, width: int) -> int:
        return round(self._layout(width)[1])

    def sizeHint(self) -> QSize:
        width = sum(
            QFontMetricsF(form.format.font()).horizontalAdvance(span.words)
            for form, span in zip(self._formats(), self._spans, strict=True)
        )
        width = min(width, 360) if self._wrap else width
        height = self._layout(width + 2)[1] if self._wrap else self._line_px()
        return QSize(round(width) + 2, round(height))

    def minimumSizeHint(self) -> QSize:
        return QSize(40, self._line_px())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._wrap:
            wanted = self.heightForWidth(self.width())
            if wanted != self.minimumHeight():
                self.setMinimumHeight(wanted)

    def paintEvent(self, event: QPaintEvent) -> None:
        layout, height = self._layout(self.width())
        top = 0.0 if self._wrap else (self.height() - height) / 2
        with painting(self) as painter:
            layout.draw(painter, QPointF(0, top))
            links = self._links()
            if self._keyboard and 0 <= self._focused_link < len(links):
                focus_ring(painter, self._link_rect(links[self._focused_link], layout), 4)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        hit = self._span_at(event.position().x(), event.position().y())
        linked = hit >= 0 and bool(self._spans[hit].link)
        shape = Qt.CursorShape.PointingHandCursor if linked else Qt.CursorShape.ArrowCursor
        self.setCursor(shape)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        hit = self._span_at(event.position().x(), event.position().y())
        if hit >= 0 and self._spans[hit].link:
            self.link_activated.emit(self._spans[hit].link)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        links = self._links()
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space) and links:
            self.link_activated.emit(self._spans[links[max(0, self._focused_link)]].link)
        elif event.key() in (Qt.Key.Key_Left, Qt.Key.Key_Right) and links:
            step = 1 if event.key() == Qt.Key.Key_Right else -1
            self._focused_link = (max(0, self._focused_link) + step) % len(links)
            self.update()
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        self._focused_link = 0
        self._keyboard = event.reason() in BY_KEYBOARD
        super().focusInEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._keyboard = False
        super().focusOutEvent(event)


def cursor_x(line: QTextLine, position: int) -> float:
    """Return the x in pixels of a character position in a laid out line."""
    result: Any = line.cursorToX(position)
    return float(result[0] if isinstance(result, tuple) else result)
