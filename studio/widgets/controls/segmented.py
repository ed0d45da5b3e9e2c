"""Segmented control: one of a few visible choices. Arrow keys move, Home and End jump."""

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.widgets.painting import paint
from studio.widgets.painting.focus import KeyboardFocus

_PADDING = 10


class Segmented(KeyboardFocus, QWidget):
    """Segmented control: `Segmented(["Step", "Time", "Tokens", "Cost"], "x axis")`; emits the index
    selected by the user."""

    chosen = Signal(int)

    def __init__(
        self,
        choices: Sequence[str],
        name: str = "",
        *,
        height: int = 26,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._choices = tuple(choices)
        self._name = name
        self._index = 0
        self._hovered = -1
        self._height = height
        self._problem = False
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.set_index(0)

    def set_index(self, index: int) -> None:
        """Select a choice without emitting."""
        self._index = max(0, min(len(self._choices) - 1, index))
        chosen = self._choices[self._index] if self._choices else ""
        self.setAccessibleName(f"{self._name}: {chosen}" if self._name else chosen)
        self.update()

    def set_choices(self, choices: Sequence[str]) -> None:
        """Replace the choices; the selected index stays if it still exists."""
        self._choices = tuple(choices)
        self.set_index(self._index)
        self.updateGeometry()

    def set_problem(self, problem: bool) -> None:
        """Draw the edge in the error colour if `problem`."""
        self._problem = problem
        self.update()

    def index(self) -> int:
        return self._index

    def choice(self) -> str:
        """Text of the selected choice."""
        return self._choices[self._index]

    def _choose(self, index: int) -> None:
        index = max(0, min(len(self._choices) - 1, index))
        if index != self._index:
            self.set_index(index)
            self.chosen.emit(index)

    def _cells(self) -> list[QRectF]:
        cells, x = [], 1.0
        for words in self._choices:
            width = round(paint.text_width(words, "caption", 600)) + 2 * _PADDING
            cells.append(QRectF(x, 1, width, self._height - 2))
            x += width
        return cells

    def _cell_at(self, x: float) -> int:
        return next(
            (i for i, cell in enumerate(self._cells()) if cell.left() <= x < cell.right()), -1
        )

    def sizeHint(self) -> QSize:
        cells = self._cells()
        return QSize(round(cells[-1].right()) + 1 if cells else 0, self._height)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            edge = "bad" if self._problem else "border"
            paint.box(painter, self.rect(), "background", edge, 6)
            for index, cell in enumerate(self._cells()):
                on = index == self._index and self.isEnabled()
                if on:
                    paint.box(painter, cell, "raised", "border-strong", 5)
                tone = "text" if on or index == self._hovered else "muted"
                tone = tone if self.isEnabled() else "faint"
                words = self._choices[index]
                weight = 600 if on else 500
                paint.text(painter, cell, words, tone, "caption", weight, paint.CENTER, elide=False)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if (index := self._cell_at(event.position().x())) >= 0:
            self._choose(index)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._hovered = self._cell_at(event.position().x())
        self.update()

    def leaveEvent(self, event: QEvent) -> None:
        self._hovered = -1
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        match event.key():
            case Qt.Key.Key_Left | Qt.Key.Key_Up:
                self._choose(self._index - 1)
            case Qt.Key.Key_Right | Qt.Key.Key_Down:
                self._choose(self._index + 1)
            case Qt.Key.Key_Home:
                self._choose(0)
            case Qt.Key.Key_End:
                self._choose(len(self._choices) - 1)
            case _:
                super().keyPressEvent(event)
