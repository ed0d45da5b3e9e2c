"""Comparison of two texts side by side, row by row, with differing words tinted and underlined.
Rows are laid out and compared when visible. Nothing is parsed as markup."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import (
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QTextCharFormat,
    QTextLayout,
)
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QWidget

from studio.text import formatting
from studio.text.word_diff import differing
from studio.theme.theme import theme
from studio.widgets.painting import paint
from studio.widgets.transcript.items import break_long_lines, cap_lines, plain
from studio.widgets.transcript.layout import char_range, new_layout, run_layout

SAME_LINES, SHOWN_LINES, MORE_LINES, CHARS_MOST = 3, 40, 200, 200_000
_GAP, _HEAD, _PAD = 16.0, 24.0, 10.0
_STYLES = {"call": "mono", "result": "label", "turn": "body"}


@dataclass(frozen=True)
class Side:
    """Side of a row: heading, text, and kind (turn, call, result, system)."""

    title: str
    text: str
    kind: str = "turn"


@dataclass(frozen=True)
class PairRow:
    """Row of the comparison; a side without a counterpart is None."""

    left: Side | None
    right: Side | None

    @property
    def same(self) -> bool:
        """Return whether both sides exist and have the same text, kind and tool."""
        return (
            self.left is not None
            and self.right is not None
            and (self.left.text, self.left.kind) == (self.right.text, self.right.kind)
            and (self.left.kind != "call" or self.left.title == self.right.title)
        )

    @property
    def renamed(self) -> bool:
        """Whether the row compares calls to different tools."""
        pair = (self.left, self.right)
        calls = [side.title for side in pair if side is not None and side.kind == "call"]
        return len(set(calls)) > 1


@dataclass
class _Laid:
    """Row laid out at a width: both sides, height, number of lines left out."""

    layouts: list[QTextLayout | None] = field(default_factory=list)
    height: float = 0.0
    left_out: int = 0


class SideBySide(QAbstractScrollArea):
    """Comparison: `set_rows(rows)`; `next_difference(1)`. J and K move between differences; a click
    opens more."""

    difference_shown = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._rows: tuple[PairRow, ...] = ()
        self._laid: dict[int, _Laid] = {}
        self._opened: dict[int, int] = {}
        self._tops: list[float] = [0.0]
        self._heights: list[float] = []
        self._at = -1
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.verticalScrollBar().setSingleStep(40)
        self.setAccessibleName("Comparison")

    def set_rows(self, rows: Sequence[PairRow]) -> None:
        """Replace the compared rows and scroll to the first."""
        self._rows, self._at = tuple(rows), -1
        self._opened.clear()
        count = sum(not row.same for row in rows)
        self.setAccessibleName(f"Comparison, {formatting.plural(count, 'difference')}")
        self._forget()
        self.verticalScrollBar().setValue(0)

    def next_difference(self, by: int) -> int:
        """Scroll to the next (`by` > 0) or previous differing row, wrapping around; return its
        index, -1 if no row differs."""
        places = [place for place, row in enumerate(self._rows) if not row.same]
        if not places:
            return -1
        if by > 0:
            after = [place for place in places if place > self._at]
            self._at = (after or places)[0]
        else:
            before = [place for place in places if place < self._at]
            self._at = (before or places)[-1]
        self._lay(self._at)
        self._measure()
        self.verticalScrollBar().setValue(round(self._tops[self._at] - 24))
        self.viewport().update()
        self.difference_shown.emit(self._at)
        return self._at

    def laid_out_count(self) -> int:
        """Number of rows laid out, for tests of the virtual list."""
        return len(self._laid)

    def _width(self) -> float:
        return max(80.0, (self.viewport().width() - _GAP - 12) / 2)

    def _forget(self) -> None:
        self._laid.clear()
        width = self._width()
        self._heights = [_estimate(row, width) for row in self._rows]
        self._measure()
        self.viewport().update()

    def _measure(self) -> None:
        tops = [4.0]
        for height in self._heights:
            tops.append(tops[-1] + height)
        self._tops = tops
        page = self.viewport().height()
        self.verticalScrollBar().setPageStep(page)
        self.verticalScrollBar().setRange(0, max(0, round(tops[-1] + 24 - page)))

    def _lay(self, place: int) -> _Laid:
        laid = self._laid.get(place)
        if laid is None:
            row = self._rows[place]
            most = SAME_LINES if row.same else SHOWN_LINES
            laid = lay_out(row, self._width(), max(most, self._opened.get(place, 0)))
            self._laid[place] = laid
            self._heights[place] = laid.height
        return laid

    def _settle(self) -> list[int]:
        """Lay out the visible rows; the scroll position is preserved."""
        if not self._rows:
            return []
        bar = self.verticalScrollBar()
        first = max(0, min(len(self._rows) - 1, bisect.bisect_right(self._tops, bar.value()) - 1))
        offset, y, place = bar.value() - self._tops[first], self._tops[first], first
        while place < len(self._rows) and y < bar.value() + self.viewport().height():
            y += self._lay(place).height
            place += 1
        self._measure()
        bar.setValue(round(self._tops[first] + offset))
        return list(range(first, place))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        width = self._width()
        for place in self._settle():
            painter.save()
            painter.translate(6, self._tops[place] - self.verticalScrollBar().value())
            self._paint_row(painter, place, width)
            painter.restore()
        painter.end()

    def _paint_row(self, painter: QPainter, place: int, width: float) -> None:
        row, laid = self._rows[place], self._laid[place]
        for number, side in enumerate((row.left, row.right)):
            x = number * (width + _GAP)
            card = QRectF(x, 2, width, laid.height - 6)
            if side is None:
                paint.box(painter, card, None, "border", 6)
                paint.text(painter, card, "empty", "faint", "caption", align=paint.CENTER)
                continue
            edge = "accent" if place == self._at else "border"
            paint.box(painter, card, "background" if row.same else "surface", edge, 6)
            if head := _title(side):
                room = QRectF(x + _PAD, 6, width - 2 * _PAD, 20)
                style = "mono-small" if side.kind == "call" else "label"
                if row.renamed:
                    self._mark_title(painter, room, paint.text_width(head, style, 600), number)
                used = paint.text(painter, room, head, "muted" if row.same else "text", style, 600)
                if row.same:
                    rest = room.adjusted(used + 8, 0, 0, 0)
                    paint.text(painter, rest, "identical", "faint", "caption")
            layout = laid.layouts[number]
            if layout is not None:
                layout.draw(painter, QPointF(x + _PAD, _top(row)))
        if laid.left_out:
            lines = "line" if laid.left_out == 1 else "lines"
            more = f"{formatting.count(laid.left_out)} more {lines}"
            room = QRectF(_PAD, laid.height - 28, width, 20)
            paint.text(painter, room, more, "accent", "label", 500)

    def _mark_title(self, painter: QPainter, room: QRectF, width: float, number: int) -> None:
        """Mark the tool name of one side (0 or 1), since the calls are to different tools."""
        color = theme().color
        rect = QRectF(room.left() - 3, room.top() + 1, min(width, room.width()) + 6, 18)
        painter.fillRect(rect, color(("advantage-neg-2", "advantage-pos-2")[number]))
        rect.setTop(rect.bottom() - 2)
        painter.fillRect(rect, color(("plot-5", "plot-1")[number]))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        y = event.position().y() + self.verticalScrollBar().value()
        place = bisect.bisect_right(self._tops, y) - 1
        if 0 <= place < len(self._rows) and place in self._laid and self._laid[place].left_out:
            self._opened[place] = max(self._opened.get(place, 0), SHOWN_LINES) + MORE_LINES
            del self._laid[place]
            self.viewport().update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        moves = {Qt.Key.Key_J: 1, Qt.Key.Key_K: -1}
        if event.key() in moves:
            self.next_difference(moves[Qt.Key(event.key())])
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._forget()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and hasattr(self, "_laid"):
            self._laid.clear()
            self.viewport().update()

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        self.viewport().update()


def _title(side: Side) -> str:
    return plain(side.title[:200])


def _top(row: PairRow) -> float:
    titled = any(side and side.title for side in (row.left, row.right))
    return _HEAD + 6 if titled else 8.0


def _estimate(row: PairRow, width: float) -> float:
    longest = max((len(s.text) for s in (row.left, row.right) if s), default=0)
    lines = min(SAME_LINES if row.same else SHOWN_LINES, 1 + longest * 7 / width)
    return _top(row) + 18 * lines + 14


def lay_out(row: PairRow, width: float, most_lines: int) -> _Laid:
    """Lay out both sides of a row, at most `most_lines` lines each; mark the differing words."""
    laid, tallest = _Laid(), 0.0
    shown: list[str | None] = []
    for side in (row.left, row.right):
        if side is None:
            shown.append(None)
            continue
        words, left_out = cap_lines(break_long_lines(plain(side.text[:CHARS_MOST])), most_lines)
        shown.append(words)
        laid.left_out = max(laid.left_out, left_out)
    marks: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    if shown[0] is not None and shown[1] is not None and not row.same:
        marks = differing(shown[0], shown[1])
    for number, (side, text) in enumerate(zip((row.left, row.right), shown, strict=True)):
        if side is None or text is None:
            laid.layouts.append(None)
            continue
        style = _STYLES.get(side.kind, "body")
        layout = new_layout(text, style)
        tone = "muted" if row.same or side.kind in ("result", "system") else "text"
        layout.setFormats(_formats(text, tone, marks[number], number))
        height = run_layout(layout, style, width - 2 * _PAD)
        tallest = max(tallest, height if text else 0.0)
        laid.layouts.append(layout)
    laid.height = _top(row) + tallest + (24 if laid.left_out else 0) + 14
    return laid


def _formats(
    text: str, tone: str, marks: list[tuple[int, int]], number: int
) -> list[QTextLayout.FormatRange]:
    plain_form = QTextCharFormat()
    plain_form.setForeground(theme().color(tone))
    formats = [char_range(0, len(text), plain_form)]
    for start, end in _joined(text, marks):
        form = QTextCharFormat()
        form.setForeground(theme().color("text"))
        form.setBackground(theme().color(("advantage-neg-2", "advantage-pos-2")[number]))
        lines = QTextCharFormat.UnderlineStyle
        form.setUnderlineStyle((lines.DashUnderline, lines.SingleUnderline)[number])
        form.setUnderlineColor(theme().color(("plot-5", "plot-1")[number]))
        formats.append(char_range(start, end - start, form))
    return formats


def _joined(text: str, marks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge marks (start, end) separated by a single space."""
    merged: list[tuple[int, int]] = []
    for start, end in marks:
        if merged and text[merged[-1][1] : start] == " ":
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged
