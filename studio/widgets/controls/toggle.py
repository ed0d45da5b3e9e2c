"""Toggle with immediate effect. Its label is clickable too."""

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from studio.theme.theme import theme
from studio.widgets.painting import paint
from studio.widgets.painting.focus import Pressable
from studio.widgets.painting.motion import Glide

_WIDTH, _HEIGHT = 28, 16


class Toggle(Pressable, QAbstractButton):
    """Toggle: `Toggle("Teach the judge too")`; the signal is `toggled(bool)` of QAbstractButton."""

    ring_radius = 8.0

    def __init__(self, words: str = "", name: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setText(words)
        self.setCheckable(True)
        self.setAccessibleName(name or words)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self._place = Glide(self)
        self.toggled.connect(lambda on: self._place.to(1.0 if on else 0.0))

    def sizeHint(self) -> QSize:
        words = 8 + paint.text_width(self.text(), "label", 400) if self.text() else 0
        return QSize(round(_WIDTH + words) + 1, 24)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        color = theme().color
        on = self._place.value
        with paint.painting(self) as painter:
            track = QRectF(0.5, (self.height() - _HEIGHT) / 2 + 0.5, _WIDTH - 1, _HEIGHT - 1)
            painter.setPen(color("accent" if self.isChecked() else "faint"))
            painter.setBrush(paint.mix(color("border-strong"), color("accent"), on))
            if not self.isEnabled():
                painter.setPen(color("border-strong"))
                painter.setBrush(color("chip"))
            painter.drawRoundedRect(track, _HEIGHT / 2, _HEIGHT / 2)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(color("on-accent") if self.isChecked() else color("background"))
            painter.drawEllipse(QPointF(8 + on * (_WIDTH - 16), track.center().y()), 5.5, 5.5)
            if self.text():
                room = QRectF(_WIDTH + 8, 0, self.width() - _WIDTH - 8, self.height())
                tone = "muted" if self.isEnabled() else "faint"
                paint.text(painter, room, self.text(), tone, "label", 400)
