"""Line of a check list with a tick or a warning: preflight, export, GPU card."""

from PySide6.QtCore import QPointF, QRectF, QSize
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.widgets.layouts import vbox
from studio.widgets.painting import paint
from studio.widgets.text.text import Text

# state -> (icon, tone)
ICONS = {
    "good": ("circle-check", "good"),
    "warn": ("triangle-alert", "warn"),
    "bad": ("octagon-alert", "bad"),
    "open": ("circle-dashed", "faint"),
    "running": ("clock", "info"),
}


class CheckLine(QWidget):
    """Check: `set_check("good", "Largest gap", "0.0163")` shows icon, text, and a monospace figure
    at the right."""

    def __init__(
        self, state: str = "open", words: str = "", figure: str = "", parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.set_check(state, words, figure)

    def set_check(self, state: str, words: str, figure: str = "") -> None:
        """Change state (good, warn, bad, open, running), text, and `figure`, a value after it."""
        self._icon, self._tone = ICONS[state]
        self._words, self._figure = words, figure
        self.setAccessibleName(f"{words} {figure}, {state}".strip())
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(240, 26)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint.icon(painter, QPointF(0, self.height() / 2 - 7), self._icon, self._tone, 14)
            line = QRectF(22, 0, self.width() - 22, self.height())
            used = paint.text(
                painter, line, self._figure, "text", "mono", align=paint.RIGHT, elide=False
            )
            paint.text(
                painter, line.adjusted(0, 0, -used - 8, 0), self._words, "text", "label", 400
            )


class CheckNote(QWidget):
    """Check as wrapped text, without truncation: name, result and hint."""

    def __init__(
        self, state: str, name: str, words: str, hint: str = "", parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._icon, self._tone = ICONS[state]
        self.setAccessibleName(f"{name}: {words} {hint}, {state}".replace(" ,", ","))
        column = vbox(
            Text(name, "label", 500),
            Text(words, "label", 400, "muted", wrap=True),
            parent=self,
            margins=(22, 4, 0, 4),
            spacing=1,
        )
        if hint:
            column.addWidget(Text(hint, "caption", tone=self._tone, wrap=True, selectable=True))

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint.icon(painter, QPointF(0, 5), self._icon, self._tone, 14)
