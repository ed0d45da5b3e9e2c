"""Train: one shape, always in the same place, and every state a run can be in."""

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QMenu, QWidget

from studio.theme import theme
from studio.widgets import paint
from studio.widgets.buttons import Button

_MENU = {
    "starting": (("Cancel the start", "cancel"),),
    "training": (
        ("Extend the run", "extend"),
        ("Stop after this step", "stop_after_step"),
        ("Change a setting from the next step", "change_setting"),
    ),
}


class TrainButton(Button):
    """Train, Starting…, Training 46 of 120, Resume, Train more.

    A press emits train_requested, resume_requested or train_more_requested; while starting or
    training it opens a menu and emits menu_chosen with extend, stop_after_step, change_setting or
    cancel.
    """

    train_requested = Signal()
    resume_requested = Signal()
    train_more_requested = Signal()
    menu_chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Train", "primary", icon="play", height=28, parent=parent)
        self._state = "ready"
        self._done = 0
        self._planned = 0
        self._plain = False
        self._phase = 0.0
        self._sweep = QTimer(self)
        self._sweep.setInterval(33)
        self._sweep.timeout.connect(self._swept)
        self.clicked.connect(self._pressed)

    def set_state(self, state: str, done: int = 0, planned: int = 0) -> None:
        """ready, starting, training (with done of planned), paused, finished, or none
        (disabled).
        """
        words = {
            "ready": "Train",
            "none": "Train",
            "starting": "Starting\u2026",
            "training": "Training",
            "paused": "Resume",
            "finished": "Train more",
        }[state]
        self._state, self._done, self._planned = state, done, planned
        self.setEnabled(state != "none")
        self.set_words(words)
        self.set_icon("" if state == "starting" else "play")
        self._restyle()
        if state == "training":
            self.setAccessibleName(f"Training, step {done} of {planned}, opens a menu")
        running = state == "starting" and not theme().reduced_motion
        self._sweep.start() if running else self._sweep.stop()

    def set_plain(self, plain: bool) -> None:
        """True where the page itself holds the one accent button."""
        self._plain = plain
        self._restyle()

    def state(self) -> str:
        """The state it shows."""
        return self._state

    def _restyle(self) -> None:
        alive = self._state in ("starting", "training")
        self.set_kind("outlined" if alive or self._plain else "primary")
        self.updateGeometry()
        self.update()

    def _swept(self) -> None:
        self._phase = (self._phase + 0.02) % 1.0
        self.update()

    def _pressed(self) -> None:
        if self._state in _MENU:
            menu = QMenu(self)
            menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            for words, choice in _MENU[self._state]:
                menu.addAction(words).triggered.connect(
                    lambda _=False, choice=choice: self.menu_chosen.emit(choice)
                )
            menu.popup(self.mapToGlobal(self.rect().bottomLeft()))
        elif self._state == "paused":
            self.resume_requested.emit()
        elif self._state == "finished":
            self.train_more_requested.emit()
        else:
            self.train_requested.emit()

    def _count(self) -> str:
        return f"{self._done} of {self._planned}"

    def _paint_alive(self, painter: QPainter) -> None:
        frame = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        clip = QPainterPath()
        clip.addRoundedRect(frame, 6, 6)
        painter.setClipPath(clip)
        painter.fillRect(frame, theme().color("selection" if self.underMouse() else "accent-soft"))
        if self._state == "training":
            share = self._done / self._planned if self._planned else 0.0
            filled = QRectF(0, 0, self.width() * share, self.height())
        else:
            filled = QRectF((self._phase * 1.4 - 0.4) * self.width(), 0, self.width() * 0.4, 28)
        painter.fillRect(filled, theme().color("accent-line"))
        painter.setClipping(False)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(theme().color("accent"), 1))
        painter.drawRoundedRect(frame, 6, 6)

    def sizeHint(self) -> QSize:
        if self._state == "training":
            return QSize(max(164, round(106 + paint.text_width(self._count(), "label", 600))), 28)
        if self._state == "starting":
            return QSize(112, 28)
        return super().sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._state not in _MENU:
            super().paintEvent(event)
            return
        with paint.painting(self) as painter:
            self._paint_alive(painter)
            if self._state == "starting":
                paint.text(
                    painter,
                    self.rect(),
                    self.words(),
                    "text",
                    "label",
                    600,
                    paint.CENTER,
                )
                return
            paint.icon(painter, QPointF(12, 7), "play", "text", 14)
            line = QRectF(32, 0, self.width() - 44, self.height())
            paint.text(painter, line, "Training", "text", "label", 600)
            paint.text(painter, line, self._count(), "text", "label", 600, paint.RIGHT)
