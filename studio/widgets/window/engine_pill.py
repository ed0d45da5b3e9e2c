"""Engine pill: status dot and name of the engine's machine. A click shows latency, version, memory
and reconnection."""

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from studio.theme.plain_tooltips import set_tip
from studio.widgets.painting import paint
from studio.widgets.painting.focus import Pressable
from studio.widgets.tables.status_dot import STATE_TEXTS, paint_dot

SEPARATOR = " · "


class EnginePill(Pressable, QAbstractButton):
    """Engine pill: `set_engine("gpu-box · H200", "connected")`; states as in `status_dot`."""

    ring_radius = 12.0

    def __init__(
        self, words: str = "No engine", state: str = "none", parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._state = state
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.set_engine(words, state)

    def set_engine(self, words: str, state: str) -> None:
        """Change the text and the state of the dot, a key of `status_dot.DOTS`."""
        self._state = state
        self.setText(words)
        self.setAccessibleName(f"Engine {words}, {STATE_TEXTS[state]}")
        set_tip(self, STATE_TEXTS[state])
        self.updateGeometry()
        self.update()

    def state(self) -> str:
        return self._state

    def sizeHint(self) -> QSize:
        return QSize(round(paint.text_width(self.text(), "label", 400)) + 34, 24)

    def words_in(self, width: float) -> str:
        """Return the text shortened to `width` pixels by leaving out the last of its facts, which
        are separated by " · "."""
        facts = self.text().split(SEPARATOR)
        while len(facts) > 1 and paint.text_width(SEPARATOR.join(facts), "label", 400) > width:
            facts.pop()
        return SEPARATOR.join(facts)

    def minimumSizeHint(self) -> QSize:
        return QSize(60, 24)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            lit = self.underMouse() or self.isDown()
            paint.box(
                painter,
                self.rect(),
                "hover" if lit else "surface",
                "border-strong" if lit else "border",
                12,
            )
            paint_dot(painter, QPointF(13, self.height() / 2), self._state)
            room = QRectF(22, 0, self.width() - 32, self.height())
            paint.text(painter, room, self.words_in(room.width()), "muted", "label", 400)
