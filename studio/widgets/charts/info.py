"""Information mark ⓘ of a chart: what it measures and what to watch for, on hover and focus."""

import textwrap
from collections.abc import Iterator, Sequence

from PySide6.QtCore import QEvent, QPoint, QPointF, QSize
from PySide6.QtGui import QEnterEvent, QFocusEvent, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QWidget

from engine.protocol.records.metrics import Metric
from studio.widgets.painting import paint
from studio.widgets.painting.focus import KeyboardFocus
from studio.widgets.text.phrase import Span
from studio.widgets.text.tooltip import Tip, TipText

SIDE, ICON = 20, 14
LINE_LETTERS = 64


class InfoMark(KeyboardFocus, QAbstractButton):
    """Information mark, drawn only while the pointer is over its card or it has the focus, or
    always."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._text = TipText("")
        self._always = self._near = False
        self.setFixedSize(SIDE, SIDE)
        self.clicked.connect(self._tell)

    def set_about(self, title: str, about: Sequence[Metric], always: bool) -> None:
        """Set title and metrics of the explanation; `always`: visible without pointer."""
        self._always = always
        self._text = TipText(title, "", list(tooltip_lines(about)))
        self.setAccessibleName(f"About {title}")
        texts = (f"{metric.words} {_worry(metric)}".strip() for metric in about)
        self.setAccessibleDescription(" ".join(texts))

    def set_near(self, near: bool) -> None:
        """Show the information mark while the pointer is over its card (`near`)."""
        self._near = near
        self.update()

    def about(self) -> TipText:
        """Return the content of the tooltip."""
        return self._text

    def _tell(self) -> None:
        Tip.of(self).show_beside(self, QPoint(SIDE // 2, SIDE // 2), self._text)

    def sizeHint(self) -> QSize:
        return QSize(SIDE, SIDE)

    def enterEvent(self, event: QEnterEvent) -> None:
        super().enterEvent(event)
        self._tell()
        self.update()

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        Tip.of(self).hide()
        self.update()

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self._tell()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        Tip.of(self).hide()

    def paintEvent(self, event: QPaintEvent) -> None:
        lit = self.underMouse() or self.hasFocus()
        if not (lit or self._near or self._always):
            return
        with paint.painting(self) as painter:
            at = QPointF((SIDE - ICON) / 2, (SIDE - ICON) / 2)
            paint.icon(painter, at, "info", "text" if lit else "faint", ICON)


def tooltip_lines(about: Sequence[Metric]) -> Iterator[list[Span]]:
    """Lines of the tooltip: name, description and threshold of each metric."""
    for metric in about:
        yield [Span(metric.key.replace("*", "name"), "text", 600, mono=False)]
        yield from ([Span(line)] for line in textwrap.wrap(metric.words, LINE_LETTERS))
        for line in textwrap.wrap(_worry(metric), LINE_LETTERS):
            yield [Span(line, "warn")]


def _worry(metric: Metric) -> str:
    return f"Watch for: {metric.worry}." if metric.worry else ""
