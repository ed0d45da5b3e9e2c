"""Active run in the sidebar of every page. A click opens the run; its button pauses it."""

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QMouseEvent, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from studio.theme.plain_tooltips import set_tip
from studio.theme.theme import theme
from studio.widgets.charts.sparkline import paint_sparkline
from studio.widgets.controls.buttons import IconButton
from studio.widgets.painting import paint
from studio.widgets.painting.focus import Pressable


class NowTraining(Pressable, QWidget):
    """Active run: `set_run("amber-kestrel", "Step 46 of 120", "2 h 40 min left", rewards)`;
    `clear()` hides it."""

    run_opened = Signal()
    pause_requested = Signal()
    resume_requested = Signal()
    ring_radius = 8.0

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._name = self._step = self._left = ""
        self._values: tuple[float, ...] = ()
        self._paused = False
        self._folded = False
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self._pause = IconButton("pause", "Pause this run", parent=self)
        self._pause.clicked.connect(self._pause_pressed)
        self.setFixedHeight(88)
        self.hide()

    def set_run(
        self, name: str, step: str, left: str, values: Sequence[float], paused: bool = False
    ) -> None:
        """Show the active run; `left`: remaining time as text, `values`: rewards by step."""
        self._name, self._step, self._left = name, step, left
        self._values, self._paused = tuple(values), paused
        self._pause.set_icon("play" if paused else "pause")
        self._pause.set_words("Resume this run" if paused else "Pause this run")
        self.setAccessibleName(f"Now training {name}, {step}, {left}")
        set_tip(self, f"{name}, {step}, {left}" if self._folded else "")
        self.show()
        self.update()

    def clear(self) -> None:
        """Hide the widget, because no run is active."""
        self.hide()

    def set_folded(self, folded: bool) -> None:
        """Reduce the widget to a dot, for the collapsed sidebar, or restore it."""
        self._folded = folded
        self.setFixedHeight(40 if folded else 88)
        self._pause.setVisible(not folded)
        self.update()

    def _pause_pressed(self) -> None:
        (self.resume_requested if self._paused else self.pause_requested).emit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._pause.move(self.width() - 30, 5)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            edge = "border-strong" if self.underMouse() else "border"
            paint.box(painter, self.rect(), "surface", edge, 8)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme().color("warn" if self._paused else "accent"))
            if self._folded:
                painter.drawEllipse(QPointF(self.width() / 2, self.height() / 2), 4, 4)
                return
            painter.drawEllipse(QPointF(15, 17), 4, 4)
            paint.text(
                painter, QRectF(25, 8, self.width() - 58, 18), self._name, "text", "label", 500
            )
            plot = QRectF(11, 30, self.width() - 22, 28)
            # The line widens with progress; a third of the width is the minimum.
            paint_sparkline(painter, plot, self._values, "plot-1", dot=False)
            line = QRectF(11, 64, self.width() - 22, 16)
            paint.text(painter, line, self._left, "muted", "caption", align=paint.RIGHT)
            paint.text(painter, line, self._step, "muted", "caption")

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self.run_opened.emit()

    def press(self) -> None:
        self.run_opened.emit()
