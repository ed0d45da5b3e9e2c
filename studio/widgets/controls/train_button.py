"""Train button: one shape and place for every state of a run."""

from collections.abc import Sequence

from PySide6.QtCore import QPoint, QPointF, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QMenu, QWidget

from studio.theme.plain_tooltips import set_tip
from studio.theme.theme import theme
from studio.widgets.controls.buttons import Button
from studio.widgets.painting import paint

WIDTH_PX = 168
"""Width in every state, so that no control beside the button moves."""
SPLIT_PX = 26
"""Width of the menu part at the right end, if there are several ways to train."""
_MENU = {
    "queued": (("Remove from queue", "stop_now"),),
    "starting": (("Cancel start", "cancel"),),
    "training": (
        ("Extend run", "extend"),
        ("Stop after this step", "stop_after_step"),
        ("Change settings for the next steps", "change_setting"),
    ),
}


class TrainButton(Button):
    """Button with the states Train, Queued, Starting…, Training 46 of 120, Resume, Train more. A
    click emits train_requested, resume_requested or train_more_requested. While queued, starting or
    training it opens a menu and emits menu_chosen with extend, stop_now, stop_after_step,
    change_setting or cancel. Its right end, or the Down key, opens further choices if there are
    any."""

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
        self._choices: tuple[tuple[str, str], ...] = ()
        self._at_end = False
        self._phase = 0.0
        self._sweep = QTimer(self)
        self._sweep.setInterval(33)
        self._sweep.timeout.connect(self._swept)
        self.clicked.connect(self._pressed)

    def set_state(self, state: str, done: int = 0, planned: int = 0, words: str = "") -> None:
        """Set the state: ready, queued, starting, training, paused, finished or none (disabled).
        `done` of `planned` is the progress; `words` are the text while starting, or the reason for
        none."""
        label = {
            "ready": "Train",
            "none": "Train",
            "queued": "Queued",
            "starting": words or "Starting\u2026",
            "training": "Training",
            "paused": "Resume",
            "finished": "Train more",
        }[state]
        self._state, self._done, self._planned = state, done, planned
        self.setEnabled(state != "none")
        set_tip(self, words if state in ("none", "starting") else "")
        self.setAccessibleDescription(self.toolTip())
        self.set_words(label)
        self.set_icon("" if state in ("queued", "starting") else "play")
        self._restyle()
        if state == "training":
            self.setAccessibleName(f"Training, step {self._count()}, opens a menu")
        running = state == "starting" and not planned and not theme().reduced_motion
        self._sweep.start() if running else self._sweep.stop()

    def set_choices(self, choices: Sequence[tuple[str, str]]) -> None:
        """Set the menu of other ways to train: labels, with the values emitted by `menu_chosen`.
        An entry with an empty value is an explanation."""
        if tuple(choices) != self._choices:
            self._choices = tuple(choices)
            self._restyle()

    def set_plain(self, plain: bool) -> None:
        """Draw without accent, on a page with its own primary button."""
        self._plain = plain
        self._restyle()

    def state(self) -> str:
        return self._state

    def _restyle(self) -> None:
        alive = self._state in _MENU
        self._menu_arrow = self._split
        self.set_kind("outlined" if alive or self._plain else "primary")
        self.updateGeometry()
        self.update()

    def _swept(self) -> None:
        self._phase = (self._phase + 0.02) % 1.0
        self.update()

    @property
    def _split(self) -> bool:
        return bool(self._choices) and self._state == "ready"

    def _open_menu(self, rows: Sequence[tuple[str, str]]) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for words, choice in rows:
            action = menu.addAction(words)
            action.setEnabled(bool(choice))
            action.triggered.connect(lambda _=False, choice=choice: self.menu_chosen.emit(choice))
        corner = self.mapToGlobal(self.rect().bottomRight())
        menu.popup(corner - QPoint(menu.sizeHint().width() - 1, -1))

    def _pressed(self) -> None:
        at_end, self._at_end = self._at_end, False
        if self._state in _MENU:
            self._open_menu(_MENU[self._state])
        elif self._split and at_end:
            self._open_menu(self._choices)
        elif self._state == "paused":
            self.resume_requested.emit()
        elif self._state == "finished":
            self.train_more_requested.emit()
        else:
            self.train_requested.emit()

    def _count(self) -> str:
        return f"{self._done} of {self._planned}" if self._planned else str(self._done)

    def _paint_alive(self, painter: QPainter) -> None:
        frame = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        clip = QPainterPath()
        clip.addRoundedRect(frame, 6, 6)
        painter.setClipPath(clip)
        painter.fillRect(frame, theme().color("selection" if self.underMouse() else "accent-soft"))
        if self._state == "training" or self._planned:
            share = self._done / self._planned if self._planned else 0.0
            filled = QRectF(0, 0, self.width() * share, self.height())
        else:
            filled = QRectF((self._phase * 1.4 - 0.4) * self.width(), 0, self.width() * 0.4, 28)
        painter.fillRect(filled, theme().color("accent-line"))
        painter.setClipping(False)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(theme().color("accent"), 1))
        painter.drawRoundedRect(frame, 6, 6)

    def _paint_split(self) -> None:
        plain = self._plain or not self.isEnabled()
        with paint.painting(self) as painter:
            color = theme().color("border-strong" if plain else "on-accent")
            painter.setOpacity(1.0 if plain else 0.35)
            painter.fillRect(QRectF(self.width() - SPLIT_PX, 6, 1, self.height() - 12), color)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._at_end = event.position().x() >= self.width() - SPLIT_PX
        super().mousePressEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Down and (self._split or self._state in _MENU):
            self._at_end = True
            self._pressed()
        else:
            self._at_end = False
            super().keyPressEvent(event)

    def sizeHint(self) -> QSize:
        return QSize(WIDTH_PX, 28)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._state not in _MENU:
            super().paintEvent(event)
            if self._split:
                self._paint_split()
            return
        with paint.painting(self) as painter:
            self._paint_alive(painter)
            if self._state != "training":
                room = QRectF(self.rect()).adjusted(10, 0, -10, 0)
                paint.text(painter, room, self.words(), "text", "label", 600, paint.CENTER)
                return
            paint.icon(painter, QPointF(12, 7), "play", "text", 14)
            line = QRectF(32, 0, self.width() - 44, self.height())
            used = paint.text(painter, line, self._count(), "text", "label", 600, paint.RIGHT)
            if used + paint.text_width("Training", "label", 600) + 8 <= line.width():
                paint.text(painter, line, "Training", "text", "label", 600)
