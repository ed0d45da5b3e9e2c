"""Transcript: virtual rows of plain text, with tinted tokens and a tooltip for each. Only visible
rows are laid out; the others have estimated heights. Nothing is parsed as markup."""

import bisect
import re
from collections.abc import Sequence

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QWidget

from studio.text import formatting
from studio.text.hits import hits
from studio.widgets.painting import paint
from studio.widgets.text.tooltip import Tip
from studio.widgets.transcript.hits import HitCursor, Patterns, kind_of
from studio.widgets.transcript.items import TINTS, Item, largest_of
from studio.widgets.transcript.layout import Looks, Row, estimate, lay_out_row, paint_row
from studio.widgets.transcript.marks import paint_hits, paint_passage, paint_token
from studio.widgets.transcript.passage import find_row, pattern_of
from studio.widgets.transcript.pictures import Pictures
from studio.widgets.transcript.thumbnails import Thumbnails
from studio.widgets.transcript.token_tooltip import token_tip
from studio.widgets.transcript.unfolded import Unfolded

WIDEST_PX = 760.0
FAINT = 0.45
"""Opacity of an excluded trajectory."""
_MARGIN = 24.0
Place = tuple[int, int, int]  # row, block, token


class Transcript(QAbstractScrollArea):
    """Transcript: `set_items(items)`, `set_tint("advantage")`. Signals: `row_focused(index)`,
    `token_hovered(Token | None)`, `tint_chosen(str)` for Alt 1–5, `hits_changed(current, count)` of
    a filter's text searches, current from 0 or -1. Keys: ↑ ↓ scroll, J K rows, Shift ← → tokens, M
    more of the focused row, F3 and Shift F3 next and previous hit."""

    row_focused = Signal(int)
    token_hovered = Signal(object)
    tint_chosen = Signal(str)
    hits_changed = Signal(int, int)

    def __init__(self, *, compact: bool = False, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._items: tuple[Item, ...] = ()
        self._rows: dict[int, Row] = {}
        self._heights: list[float] = []
        self._tops: list[float] = [0.0]
        self._unfolded = Unfolded()
        self._tint, self._largest_advantage = "advantage", 0.0
        self._largest = 1.0
        self._indent = 0.0 if compact else 22.0
        self._margin = 10.0 if compact else _MARGIN
        self._focused = -1
        self._token: Place | None = None
        self._keyboard = False
        self._faint = False
        self._passage: re.Pattern[str] | None = None
        self._patterns: Patterns = {}
        self._hits = HitCursor()
        self._pictures: Pictures | None = None
        self._thumbnails = Thumbnails(self.viewport())
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.viewport().setMouseTracking(True)
        self.verticalScrollBar().setSingleStep(40)
        self.setAccessibleName("Transcript")

    def set_items(
        self, items: Sequence[Item], *, keep_place: bool = False, largest: float = 0.0
    ) -> None:
        """Show the rows of a trajectory; `keep_place` keeps the scroll position for an update.
        `largest`: absolute advantage at full colour, that of the group (0: of the rows)."""
        place = self.verticalScrollBar().value() if keep_place else 0
        self._items = tuple(items)
        self._token = None
        if not keep_place:
            self._unfolded.clear()
            self._focused, self._passage = -1, None
        self._largest_advantage = largest
        self._largest = self._scale()
        self.setAccessibleName(f"Transcript, {formatting.plural(len(items), 'row')}")
        self._forget()
        self.verticalScrollBar().setValue(place)
        if self._patterns:
            self.set_hits(self._patterns)

    def set_pictures(self, pictures: Pictures) -> None:
        """Show images as thumbnails; without this, as marks in the text."""
        self._pictures = pictures
        self._thumbnails.opened.connect(pictures.opened)
        pictures.changed.connect(self._lay_out_again)

    def _lay_out_again(self) -> None:
        self._rows.clear()
        self.viewport().update()

    def set_tint(self, tint: str) -> None:
        """Set what the token colours show: advantage, logprob, entropy, mask or none."""
        if tint not in TINTS:
            raise ValueError(f"tint is {tint!r}, expected one of {', '.join(TINTS)}")
        self._tint = tint
        self._largest = self._scale()
        self._lay_out_again()

    def _scale(self) -> float:
        of_rows = largest_of(self._items, self._tint)
        return max(of_rows, self._largest_advantage) if self._tint == "advantage" else of_rows

    def tint(self) -> str:
        return self._tint

    def largest(self) -> float:
        """Return the absolute value at full colour of the quantity shown as token colours."""
        return self._largest

    def focus_row(self, index: int) -> None:
        """Scroll to a row and mark it, without emitting."""
        if 0 <= index < len(self._items):
            self._focused = index
            self._reveal(index)
            self.viewport().update()

    def show_passage(self, quote: str) -> bool:
        """Scroll to the first row with a passage and mark it; False if there is none."""
        row, lines, chars, block = find_row(self._items, quote)
        if row < 0:
            return False
        self._passage = pattern_of(quote)
        self._unfold(row, block, lines, chars)
        self._focused = row
        self._show_marked()
        return True

    def set_hits(self, patterns: Patterns) -> None:
        """Mark what matches; `patterns`: one for each kind of text (prompt, answer, call)."""
        self._patterns = patterns
        self._hits.find(self._items, patterns)
        self.hits_changed.emit(self._hits.place, self.hit_count())
        self.viewport().update()

    def hit_count(self) -> int:
        """Number of hits in the whole transcript."""
        return len(self._hits.all)

    def next_hit(self, by: int = 1) -> None:
        """Scroll to the next match (`by` -1: the previous one), wrapping around; if none is
        current, to the first at or below the focused row."""
        hit = self._hits.step(by, self._focused)
        if hit is None:
            return
        self._unfold(hit.row, hit.block, hit.lines, hit.chars)
        self.focus_row(hit.row)
        for rects in self._hit_rects(hit.row)[hit.block : hit.block + 1]:
            self._scroll_to(hit.row, rects[hit.nth : hit.nth + 1])
        self.hits_changed.emit(self._hits.place, self.hit_count())

    def _hit_rects(self, index: int) -> list[list[list[QRectF]]]:
        """Rectangles of the hits in a row, by block of text and hit."""
        pattern = self._patterns.get(kind_of(self._items[index]))
        return [
            [block.rects_between(*span) for span in hits(pattern, block.layout.text())]
            for block in (self._row(index).blocks if pattern else ())
        ]

    def _scroll_to(self, index: int, hits: Sequence[Sequence[QRectF]]) -> None:
        """Scroll the first rectangle of a row to a third of the height."""
        for rects in hits:
            top = self._tops[index] + rects[0].top() if rects else self._tops[index]
            self.verticalScrollBar().setValue(round(top - self.viewport().height() / 3))

    def _unfold(self, row: int, block: int, lines: int, chars: int) -> None:
        """Lay out at least this much of a block of text, and its reasoning if it is that."""
        self._unfolded.reach(row, lines, chars)
        if block == 0 and self._row(row).fold is not None:
            self._unfolded.show_reasoning(row)
        self._rows.pop(row, None)

    def toggle_reasoning(self) -> None:
        """Show or fold the reasoning of the focused row; if it has none, of all rows."""
        every = [n for n, item in enumerate(self._items) if getattr(item, "reasoning", "")]
        self._unfolded.toggle_reasoning([self._focused] if self._focused in every else every)
        self._lay_out_again()

    def _show_marked(self) -> None:
        """Scroll the marked passage to a third of the height."""
        self.focus_row(self._focused)
        if marked := self._marked(self._focused):
            self._scroll_to(self._focused, [marked])

    def _marked(self, index: int) -> list[QRectF]:
        """Rectangles of the marked passage in a row."""
        if self._passage is None or index != self._focused or index < 0:
            return []
        for block in self._row(index).blocks:
            if match := self._passage.search(block.layout.text()):
                return block.rects_between(match.start(), match.end())
        return []

    def focused_row(self) -> int:
        """Index of the marked row, or -1."""
        return self._focused

    def set_faint(self, faint: bool) -> None:
        """Draw the transcript at 45 % opacity, as for an excluded trajectory."""
        if faint != self._faint:
            self._faint = faint
            self.viewport().update()

    def laid_out_count(self) -> int:
        """Number of rows laid out at this width, for tests of the virtual list."""
        return len(self._rows)

    def _looks(self) -> Looks:
        width = min(WIDEST_PX, self.viewport().width() - 2 * self._margin)
        return Looks(max(80.0, width), self._tint, self._largest, self._indent, self._pictures)

    def _left(self) -> float:
        return max(self._margin, (self.viewport().width() - self._looks().width) / 2)

    def _forget(self) -> None:
        self._rows.clear()
        width = self._looks().width
        self._heights = [estimate(item, width) for item in self._items]
        self._measure()
        self.viewport().update()

    def _measure(self) -> None:
        tops = [12.0]
        for height in self._heights:
            tops.append(tops[-1] + height)
        self._tops = tops
        page = self.viewport().height()
        bar = self.verticalScrollBar()
        bar.setPageStep(page)
        bar.setRange(0, max(0, round(tops[-1] + 24 - page)))

    def _row(self, index: int) -> Row:
        row = self._rows.get(index)
        if row is None:
            unfolded = self._unfolded.lines(index), self._unfolded.shows_reasoning(index)
            row = lay_out_row(self._items[index], self._looks(), *unfolded)
            self._rows[index] = row
        return row

    def _settle(self) -> list[int]:
        """Lay out the visible rows until their heights are stable; the first visible row keeps its
        position."""
        if not self._items:
            return []
        bar = self.verticalScrollBar()
        for _ in range(4):
            first = max(0, bisect.bisect_right(self._tops, bar.value()) - 1)
            first = min(first, len(self._items) - 1)
            offset = bar.value() - self._tops[first]
            index, y, changed = first, self._tops[first], False
            while index < len(self._items) and y < bar.value() + self.viewport().height():
                height = self._row(index).height
                if abs(height - self._heights[index]) > 0.5:
                    self._heights[index] = height
                    changed = True
                y += height
                index += 1
            if not changed:
                break
            self._measure()
            bar.setValue(round(self._tops[first] + offset))
        return list(range(first, index))

    def _reveal(self, index: int) -> None:
        bar = self.verticalScrollBar()
        self._heights[index] = self._row(index).height
        self._measure()
        top, bottom = self._tops[index] - 12, self._tops[index + 1]
        if top < bar.value() or bottom - top > self.viewport().height():
            bar.setValue(round(top))
        elif bottom > bar.value() + self.viewport().height():
            bar.setValue(round(bottom - self.viewport().height() + 12))

    def _row_at(self, y: float) -> int:
        index = bisect.bisect_right(self._tops, y + self.verticalScrollBar().value()) - 1
        return index if 0 <= index < len(self._items) else -1

    def _in_row(self, index: int, point: QPointF) -> QPointF:
        top = self._tops[index] - self.verticalScrollBar().value()
        return point - QPointF(self._left(), top)

    def _token_under(self, point: QPointF) -> Place | None:
        index = self._row_at(point.y())
        if index < 0:
            return None
        inside = self._in_row(index, point)
        for number, block in enumerate(self._row(index).blocks):
            if block.tokens and (token_index := block.token_at(inside)) >= 0:
                return (index, number, token_index)
        return None

    def _point_token(self, place: Place | None) -> None:
        if place == self._token:
            return
        self._token = place
        self.viewport().update()
        if place is None:
            Tip.of(self).hide()
            self.token_hovered.emit(None)
            return
        index, number, token_index = place
        block = self._row(index).blocks[number]
        rects = block.rects_of(token_index)
        token = block.tokens[token_index]
        self.token_hovered.emit(token)
        if rects:
            corner = rects[-1].bottomLeft() + QPointF(
                self._left(), self._tops[index] - self.verticalScrollBar().value()
            )
            Tip.of(self).show_beside(
                self.viewport(), QPoint(round(corner.x()), round(corner.y())), token_tip(token)
            )

    def _walk_token(self, by: int) -> None:
        places = [
            (index, number, token_index)
            for index in ([self._token[0]] if self._token else self._settle())
            for number, block in enumerate(self._row(index).blocks)
            for token_index in range(len(block.tokens))
        ]
        if not places:
            return
        at = places.index(self._token) + by if self._token in places else 0
        self._point_token(places[max(0, min(len(places) - 1, at))])

    def _walk_row(self, by: int) -> None:
        if self._items:
            index = max(0, min(len(self._items) - 1, self._focused + by))
            self.focus_row(index)
            self.row_focused.emit(index)

    def _open_more(self, index: int) -> None:
        self._unfolded.more(index)
        self._rows.pop(index, None)
        self._settle()
        self.viewport().update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        looks, left = self._looks(), self._left()
        painter.setOpacity(FAINT if self._faint else 1.0)
        visible = self._settle()
        self._place_thumbnails(visible)
        for index in visible:
            top = self._tops[index] - self.verticalScrollBar().value()
            painter.save()
            painter.translate(left, top)
            paint_row(painter, self._row(index), looks, index == self._focused)
            if self._hits.all:
                paint_hits(painter, self._hit_rects(index), index, self._hits.current)
            paint_passage(painter, self._marked(index))
            if self._token is not None and self._token[0] == index:
                block = self._row(index).blocks[self._token[1]]
                paint_token(painter, block.rects_of(self._token[2]))
            painter.restore()
        if self._keyboard:
            paint.focus_ring(painter, QRectF(self.viewport().rect()), 0)
        painter.end()

    def _place_thumbnails(self, visible: Sequence[int]) -> None:
        if self._pictures is not None:
            rows = {index: self._row(index).spots for index in visible}
            spots = {(row, n): spot for row, found in rows.items() for n, spot in enumerate(found)}
            self._thumbnails.place(spots, self._pictures, self._corner)

    def _corner(self, index: int) -> QPoint:
        """Top left corner of a row in the viewport."""
        top = self._tops[index] - self.verticalScrollBar().value()
        return QPoint(round(self._left()), round(top))

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._forget()
        if self._passage is not None:
            self._show_marked()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and hasattr(self, "_rows"):
            self._lay_out_again()

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        Tip.of(self).hide()
        self.viewport().update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._point_token(self._token_under(event.position()))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        index = self._row_at(event.position().y())
        if index < 0:
            return
        row, inside = self._row(index), self._in_row(index, event.position())
        if row.more is not None and row.more.contains(inside):
            self._open_more(index)
            return
        self._focused, self._passage = index, None
        if row.fold is not None and row.fold.contains(inside):
            self.toggle_reasoning()
        self.row_focused.emit(index)
        self.viewport().update()

    def leaveEvent(self, event: QEvent) -> None:
        self._point_token(None)

    def focusInEvent(self, event: QFocusEvent) -> None:
        tabbed = (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        self._keyboard = event.reason() in tabbed
        self.viewport().update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._keyboard = False
        self._point_token(None)
        self.viewport().update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        shift = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        alt = bool(event.modifiers() & Qt.KeyboardModifier.AltModifier)
        key = event.key()
        if alt and Qt.Key.Key_1 <= key <= Qt.Key.Key_5:
            self.tint_chosen.emit(TINTS[key - Qt.Key.Key_1])
        elif shift and key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            self._walk_token(1 if key == Qt.Key.Key_Right else -1)
        elif key == Qt.Key.Key_F3:
            self.next_hit(-1 if shift else 1)
        elif key == Qt.Key.Key_J:
            self._walk_row(1)
        elif key == Qt.Key.Key_K:
            self._walk_row(-1)
        elif key == Qt.Key.Key_M and self._focused >= 0 and self._row(self._focused).more:
            self._open_more(self._focused)
        elif key == Qt.Key.Key_Home:
            self.verticalScrollBar().setValue(0)
        elif key == Qt.Key.Key_End:
            self.verticalScrollBar().setValue(self.verticalScrollBar().maximum())
        else:
            super().keyPressEvent(event)
