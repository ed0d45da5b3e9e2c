"""Step strip: one cell per step of the run, with marks and the current selection."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence

from PySide6.QtCore import QElapsedTimer, QEvent, QPoint, QPointF, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPolygonF,
    QResizeEvent,
)
from PySide6.QtWidgets import QMenu, QSizePolicy, QWidget

from studio.text import formatting
from studio.theme.theme import theme
from studio.theme.tokens import reward_token
from studio.widgets.painting import paint
from studio.widgets.painting.focus import KeyboardFocus
from studio.widgets.steps.strip_layout import Slot, StepCell, lay_out, merged_cell, slot_of
from studio.widgets.text.phrase import Span
from studio.widgets.text.tooltip import Tip, TipText

_TOP, _CELL = 3, 20
_BREATH_MS = 1600
_STATE_WORDS = {
    "running": "running",
    "planned": "not started",
    "skipped": "skipped: no signal",
    "stopped": "stopped here",
}


class StepStrip(KeyboardFocus, QWidget):
    """Step strip: cells, validation diamonds, checkpoint bars and branch forks. Signals:
    `step_hovered(step | None)` moves the shared crosshair, `step_chosen(step)` selects a cell,
    `step_opened(step)` (Enter, double click) opens its trajectories, `branch_wanted(step)` (B)
    branches a run there."""

    step_hovered = Signal(object)
    step_chosen = Signal(int)
    step_opened = Signal(int)
    branch_wanted = Signal(int)
    ring_inside = True

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._cells: tuple[StepCell, ...] = ()
        self._slots: list[Slot] = []
        self._merged: list[StepCell] = []
        self._marked: list[set[str]] | None = None
        self._range = (0.0, 1.0)
        self._measure, self._falls = "reward", False
        self._marks: dict[str, frozenset[int]] = {}
        self._chosen: int | None = None
        self._crosshair: int | None = None
        self._age = QElapsedTimer()
        self._age.start()
        self._breath = QTimer(self)
        self._breath.setInterval(66)
        self._breath.timeout.connect(self._breathed)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Steps of the run")

    def set_measure(self, name: str, falls: bool = False) -> None:
        """Set the name of the cells' metric; with `falls`, lower is better and the ramp is
        reversed."""
        self._measure, self._falls = name, falls

    def set_steps(self, cells: Sequence[StepCell], low: float = 0.0, high: float = 1.0) -> None:
        """Set all cells in order, planned ones too, and the rewards at the colour ramp's ends."""
        before, self._cells, self._range = self._cells, tuple(cells), (low, high)
        self._lay_out(before)
        alive = any(cell.state == "running" for cell in self._cells)
        breathing = alive and not theme().reduced_motion
        self._breath.start() if breathing else self._breath.stop()
        self.update()

    def _lay_out(self, before: Sequence[StepCell]) -> None:
        """Lay out slots; one whose cells equal those in `before` keeps its merged cell."""
        old = dict(zip(self._slots, self._merged, strict=True))
        self._slots = lay_out(len(self._cells), self.width())
        self._merged = []
        for slot in self._slots:
            span = slice(slot.first, slot.last + 1)
            same = slot in old and self._cells[span] == before[span]
            self._merged.append(old[slot] if same else merged_cell(self._cells[span]))
        self._marked = None

    def _mark(self) -> list[set[str]]:
        """Marks of each slot, computed on first drawing."""
        if self._marked is None:
            self._marked = [set() for _ in self._slots]
            starts = [slot.first for slot in self._slots]
            places = {cell.step: index for index, cell in enumerate(self._cells)}
            for what, steps in self._marks.items():
                for index in {bisect_right(starts, places[s]) - 1 for s in steps if s in places}:
                    self._marked[index].add(what)
        return self._marked

    def set_marks(
        self,
        validations: Collection[int] = (),
        checkpoints: Collection[int] = (),
        branches: Collection[int] = (),
    ) -> None:
        """Set the steps with a mark below: validation, saved checkpoint, or start of a branch."""
        self._marks = {
            "validation": frozenset(validations),
            "checkpoint": frozenset(checkpoints),
            "branch": frozenset(branches),
        }
        self._marked = None
        self.update()

    def set_chosen(self, step: int | None) -> None:
        """Select a step (None: none) without emitting a signal."""
        self._chosen = step
        self._tell()
        self.update()

    def set_crosshair(self, step: int | None) -> None:
        """Set the step of the crosshair shared with the charts (None: hidden)."""
        if step != self._crosshair:
            self._crosshair = step
            self.update()

    def chosen(self) -> int | None:
        """Selected step, or None."""
        return self._chosen

    def _index_of(self, step: int | None) -> int:
        if step is None:
            return -1
        index = bisect_left(self._cells, step, key=lambda cell: cell.step)
        return index if index < len(self._cells) and self._cells[index].step == step else -1

    def _tell(self) -> None:
        index = self._index_of(self._chosen)
        name = "Steps of the run"
        if index >= 0:
            cell = self._cells[index]
            value = _STATE_WORDS.get(
                cell.state, f"{self._measure} {formatting.number(cell.reward)}"
            )
            name = f"{name}, step {cell.step}, {value}"
        self.setAccessibleName(name)

    def _choose(self, index: int) -> None:
        if not self._cells:
            return
        step = self._cells[max(0, min(len(self._cells) - 1, index))].step
        self.set_chosen(step)
        self.step_chosen.emit(step)

    def _slot_at(self, x: float) -> int:
        return next(
            (n for n, slot in enumerate(self._slots) if x < slot.x + slot.width + 2),
            len(self._slots) - 1,
        )

    def _breathed(self) -> None:
        if self.isVisible():
            self.update()

    def _tip_for(self, number: int) -> TipText:
        slot = self._slots[number]
        cells = self._cells[slot.first : slot.last + 1]
        cell = self._merged[number]
        title = f"Step {cells[0].step}"
        if len(cells) > 1:
            title = f"Steps {cells[0].step} to {cells[-1].step}"
        lines = []
        if cell.reward is not None:
            mean = "mean " if len(cells) > 1 else ""
            lines.append(
                [Span(f"{mean}{self._measure} "), Span(formatting.number(cell.reward), "text", 600)]
            )
        else:
            lines.append([Span(_STATE_WORDS.get(cell.state, f"no {self._measure}"))])
        if cell.words:
            lines.append([Span(cell.words)])
        marks = [what for what in self._marks if what in self._mark()[number]]
        if marks:
            lines.append([Span(" · ".join(marks))])
        action = "Enter: show trajectories" if cell.state in ("done", "skipped", "stopped") else ""
        return TipText(title, "", lines, action)

    def sizeHint(self) -> QSize:
        return QSize(600, _TOP + _CELL + 15)

    def minimumSizeHint(self) -> QSize:
        return QSize(120, _TOP + _CELL + 15)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._lay_out(self._cells)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            for slot, cell, marked in zip(self._slots, self._merged, self._mark(), strict=True):
                self._paint_cell(painter, slot, cell)
                self._paint_marks(painter, slot, marked)
            for step, tone in ((self._crosshair, "muted"), (self._chosen, "text")):
                number = slot_of(self._slots, self._index_of(step))
                if number >= 0:
                    self._paint_choice(painter, self._slots[number], tone)

    def _token(self, value: float) -> str:
        low, high = self._range
        return reward_token(-value, -high, -low) if self._falls else reward_token(value, low, high)

    def _paint_cell(self, painter: QPainter, slot: Slot, cell: StepCell) -> None:
        rect = QRectF(slot.x, _TOP, slot.width, _CELL)
        radius = 2 if slot.width >= 5 else 1
        if cell.state == "done" and cell.reward is not None:
            paint.box(painter, rect, self._token(cell.reward), None, radius)
        elif cell.state == "running":
            phase = self._age.elapsed() % _BREATH_MS / _BREATH_MS
            alpha = 0.8 + 0.2 * math.cos(2 * math.pi * phase) if self._breath.isActive() else 1.0
            painter.setOpacity(alpha)
            paint.box(painter, rect, "accent-soft", "accent", radius, 1.5)
            painter.setOpacity(1.0)
        elif cell.state == "skipped":
            paint.box(painter, rect, "reward-0", None, radius)
            paint.hatch(painter, rect, "ghost", radius)
        elif cell.state == "stopped":
            paint.box(painter, rect, "bad-soft", "bad", radius, 1.5)
            arm = min(3.0, slot.width / 2 - 2)
            if arm > 0:
                middle = rect.center()
                painter.setPen(QPen(theme().color("bad"), 1.5))
                for sign in (1, -1):
                    offset = QPointF(arm, arm * sign)
                    painter.drawLine(middle - offset, middle + offset)
        else:
            paint.box(painter, rect, None, "border", radius)

    def _paint_marks(self, painter: QPainter, slot: Slot, marked: set[str]) -> None:
        x, y = slot.x + slot.width / 2, _TOP + _CELL + 7
        painter.setPen(Qt.PenStyle.NoPen)
        validated, kept = "validation" in marked, "checkpoint" in marked
        if kept:
            bar = x - 10 if validated else x - 3  # next to the diamond if a step has both
            painter.setBrush(theme().color("accent"))
            painter.drawRoundedRect(QRectF(bar, y - 1.5, 6, 3), 1, 1)
        if validated:
            x = x + 2 if kept else x
            painter.setBrush(theme().color("text"))
            diamond = [QPointF(x, y - 3), QPointF(x + 3, y), QPointF(x, y + 3), QPointF(x - 3, y)]
            painter.drawPolygon(QPolygonF(diamond))
        if "branch" in marked:
            paint.icon(painter, QPointF(x + 4, y - 5), "git-branch", "muted", 10)

    def _paint_choice(self, painter: QPainter, slot: Slot, tone: str) -> None:
        rect = QRectF(slot.x, _TOP, slot.width, _CELL).adjusted(-2, -2, 2, 2)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(theme().color("background"), 3.5))
        painter.drawRoundedRect(rect, 3, 3)
        ring = "focus" if self.keyboard_focus and tone == "text" else tone
        painter.setPen(QPen(theme().color(ring), 2 if tone == "text" else 1.2))
        painter.drawRoundedRect(rect, 3, 3)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        number = self._slot_at(event.position().x())
        if number < 0:
            return
        slot = self._slots[number]
        self.step_hovered.emit(self._cells[slot.first].step)
        below = QPoint(round(slot.x + slot.width / 2), _TOP + _CELL + 2)
        Tip.of(self).show_beside(self, below, self._tip_for(number))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        number = self._slot_at(event.position().x())
        if event.button() == Qt.MouseButton.LeftButton and number >= 0:
            self._choose(self._slots[number].first)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        if self._chosen is not None:
            self.step_opened.emit(self._chosen)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """Open the menu of a step: show its trajectories, or branch there."""
        number = self._slot_at(event.pos().x())
        if number < 0:
            return
        self._choose(self._slots[number].first)
        step, menu = self._chosen, QMenu(self)
        menu.aboutToHide.connect(menu.deleteLater)
        opened = menu.addAction("Show trajectories")
        opened.triggered.connect(lambda: self.step_opened.emit(step))
        branch = menu.addAction("Branch here…")
        branch.triggered.connect(lambda: self.branch_wanted.emit(step))
        menu.popup(event.globalPos())

    def leaveEvent(self, event: QEvent) -> None:
        Tip.of(self).hide()
        self.step_hovered.emit(None)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        at = self._index_of(self._chosen)
        number = slot_of(self._slots, at)
        match event.key():
            case Qt.Key.Key_Left:
                self._choose(self._slots[max(0, number - 1)].first if number >= 0 else 0)
            case Qt.Key.Key_Right:
                last = len(self._slots) - 1
                self._choose(self._slots[min(last, number + 1)].first if self._slots else 0)
            case Qt.Key.Key_Home:
                self._choose(0)
            case Qt.Key.Key_End:
                reached = [i for i, cell in enumerate(self._cells) if cell.state != "planned"]
                self._choose(reached[-1] if reached else len(self._cells) - 1)
            case Qt.Key.Key_Return | Qt.Key.Key_Enter if self._chosen is not None:
                self.step_opened.emit(self._chosen)
            case Qt.Key.Key_B if self._chosen is not None and not event.modifiers():
                self.branch_wanted.emit(self._chosen)
            case _:
                super().keyPressEvent(event)
