"""Siblings in columns: reward, advantage, parts, where each parts from the others, transcript."""

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QMouseEvent, QPaintEvent, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from engine.protocol.records import GroupSummary, Trajectory
from studio import figures
from studio.pages.trajectories.reading import items_of, partings, parts_of, ranks
from studio.theme import theme
from studio.widgets import paint
from studio.widgets.advantage_mark import paint_advantage
from studio.widgets.parts_bar import paint_parts
from studio.widgets.transcript import Transcript

NARROWEST, WIDEST, GAP = 232, 320, 8


class ColumnHead(QWidget):
    """Number, reward, advantage, parts, rank, where it parts."""

    pressed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedHeight(106)
        self._trajectory: Trajectory | None = None
        self._rank = self._of = 0
        self._parting = ""
        self._focused = False

    def show_sibling(self, trajectory: Trajectory, rank: int, of: int, parting: str) -> None:
        self._trajectory, self._rank, self._of, self._parting = trajectory, rank, of, parting
        self.update()

    def set_focused(self, focused: bool) -> None:
        self._focused = focused
        self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.pressed.emit()

    def paintEvent(self, event: QPaintEvent) -> None:
        record = self._trajectory
        if record is None:
            return
        with paint.painting(self) as painter:
            badge = QRectF(12, 12, 20, 20)
            paint.box(painter, badge, "accent" if self._focused else "chip", None, 4)
            tone = "on-accent" if self._focused else "muted"
            paint.text(painter, badge, str(record.index + 1), tone, "caption", 600, paint.CENTER)
            reward = QRectF(42, 8, 70, 28)
            width = paint.text(painter, reward, figures.number(record.reward), "text", "title")
            if record.advantage is not None:
                paint_advantage(painter, QRectF(42 + width + 12, 12, 90, 20), record.advantage)
            bar = QRectF(12, 42, self.width() - 24, 6)
            paint_parts(painter, bar, parts_of(record))
            words = QRectF(12, 54, self.width() - 24, 18)
            paint.text(painter, words, self._facts(record), self._tone(record), "caption")
            band = QRectF(1, 80, self.width() - 2, 22)
            painter.fillRect(band, theme().color("chip"))
            paint.icon(painter, band.topLeft() + paint.QPointF(10, 4), "split", "muted", 14)
            parting = band.adjusted(30, 0, -8, 0)
            paint.text(painter, parting, self._parting, "muted", "caption")

    def _tone(self, record: Trajectory) -> str:
        return "warn" if record.reward is None else "muted"

    def _facts(self, record: Trajectory) -> str:
        if record.reward is None:
            why = record.problem.message if record.problem else "no reward"
            return f"unscored · {why}"
        place = f"{figures.ordinal(self._rank)} of {self._of}"
        parts = [place, figures.plural(record.turns, "turn")]
        if record.sampled_tokens:  # nobody counted those of an imported attempt
            parts.append(f"{figures.count(record.sampled_tokens)} tokens")
        return " · ".join(parts)


class SiblingColumn(QWidget):
    """One sibling; the focused one has an accent edge."""

    focused = Signal()
    opened = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._chosen = False
        self.head, self.transcript = ColumnHead(), Transcript(compact=True)
        column = QVBoxLayout(self)
        column.setContentsMargins(1, 1, 1, 2)
        column.setSpacing(0)
        column.addWidget(self.head)
        column.addWidget(self.transcript, 1)
        self.head.pressed.connect(self.focused)
        self.transcript.row_focused.connect(lambda _: self.focused.emit())

    def set_chosen(self, chosen: bool) -> None:
        self._chosen = chosen
        self.head.set_focused(chosen)
        self.update()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.opened.emit()

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint.box(painter, self.rect(), "surface", "accent" if self._chosen else "border", 8)


class ColumnsView(QWidget):
    """`show_group(group, siblings)`; `focus(index)`; pages through what does not fit."""

    focus_changed = Signal(int)
    opened = Signal(int)
    paged = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._siblings: list[Trajectory] = []
        self._group: GroupSummary | None = None
        self._partings: list[str] = []
        self._columns: list[SiblingColumn] = []
        self._first = self._focus = 0
        self._tint = "advantage"
        self._line = QHBoxLayout(self)
        self._line.setContentsMargins(0, 0, 0, 0)
        self._line.setSpacing(GAP)

    @property
    def focused(self) -> int:
        return self._focus

    def record(self) -> Trajectory | None:
        """The focused sibling."""
        return self._siblings[self._focus] if self._siblings else None

    def show_group(self, group: GroupSummary, siblings: Sequence[Trajectory]) -> None:
        """Best first: what worked is read beside what did not."""
        self._group = group
        order = sorted(range(len(siblings)), key=lambda i: -_reward(siblings[i]))
        told = partings(siblings)
        self._siblings = [siblings[i] for i in order]
        self._partings = [told[i] for i in order]
        self._first = self._focus = 0
        self._fill()

    def set_tint(self, tint: str) -> None:
        self._tint = tint
        for column in self._columns:
            column.transcript.set_tint(tint)

    def move_focus(self, by: int) -> None:
        self.focus(self._focus + by)

    def focus(self, place: int) -> None:
        """Focus a place in the order shown; it comes into view."""
        if not self._siblings:
            return
        self._focus = min(len(self._siblings) - 1, max(0, place))
        shown = self._shown()
        if self._focus < self._first:
            self._first = self._focus
            self._fill()
        elif self._focus >= self._first + shown:
            self._first = self._focus - shown + 1
            self._fill()
        self._mark()
        self.focus_changed.emit(self._siblings[self._focus].index)

    def page(self, by: int) -> None:
        shown = self._shown()
        last = max(0, len(self._siblings) - shown)
        self._first = min(last, max(0, self._first + by * shown))
        self._focus = min(max(self._focus, self._first), self._first + shown - 1)
        self._fill()

    def focus_index(self, index: int) -> None:
        """Focus a sibling by its number in the group."""
        places = [i for i, record in enumerate(self._siblings) if record.index == index]
        self.focus(places[0] if places else 0)

    def sizeHint(self) -> QSize:
        return QSize(2 * NARROWEST + GAP, 400)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if len(self._columns) != min(self._shown(), len(self._siblings)):
            self._fill()

    def wheelEvent(self, event: QWheelEvent) -> None:
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self.page(-1 if event.angleDelta().y() > 0 else 1)
        else:
            super().wheelEvent(event)

    def _shown(self) -> int:
        return max(2, (self.width() + GAP) // (NARROWEST + GAP))

    def _fill(self) -> None:
        count = min(self._shown(), len(self._siblings))
        self._first = min(self._first, max(0, len(self._siblings) - count))
        self._make(count)
        places = ranks(self._group) if self._group else {}
        for column, place in zip(
            self._columns, range(self._first, self._first + count), strict=True
        ):
            record = self._siblings[place]
            rank = places.get(record.index, 0)
            column.head.show_sibling(record, rank, len(self._siblings), self._partings[place])
            column.transcript.set_items(items_of(record, shared=True))
            column.transcript.set_tint(self._tint)
        self._mark()
        numbers = ", ".join(
            str(r.index + 1) for r in self._siblings[self._first : self._first + count]
        )
        of = f" of {figures.plural(len(self._siblings), 'sibling')}" if self._siblings else ""
        self.paged.emit(f"{numbers}{of}")

    def _make(self, count: int) -> None:
        while len(self._columns) < count:
            column, place = SiblingColumn(), len(self._columns)
            column.setMaximumWidth(WIDEST * 2)
            column.focused.connect(lambda place=place: self.focus(self._first + place))
            column.opened.connect(lambda place=place: self._open(place))
            self._columns.append(column)
            self._line.addWidget(column, 1)
        while len(self._columns) > count:
            column = self._columns.pop()
            self._line.removeWidget(column)
            column.deleteLater()

    def _open(self, place: int) -> None:
        self.focus(self._first + place)
        self.opened.emit(self._siblings[self._focus].index)

    def _mark(self) -> None:
        for place, column in enumerate(self._columns):
            column.set_chosen(self._first + place == self._focus)


def _reward(record: Trajectory) -> float:
    return record.reward if record.reward is not None else float("-inf")
