"""Card of a diagnosis: figure, cause, cost, one suggested change and a way to see it."""

from PySide6.QtCore import QPointF, Qt, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QWidget

from studio.widgets.controls.buttons import Button, IconButton
from studio.widgets.layouts import STRETCH, add, hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.text.phrase import Phrase
from studio.widgets.text.text import Text

# tone -> (fill, edge, icon tone, icon)
_LOOKS = {
    "warn": ("warn-soft", "warn-line", "warn", "triangle-alert"),
    "info": ("surface", "border", "info", "search-check"),
}


class DiagnosisCard(QWidget):
    """Diagnosis: `DiagnosisCard(title, words, action, show)`, the last two being button labels.
    Tone: warn, or info if nothing is wrong."""

    action_requested = Signal()
    evidence_requested = Signal()
    dismissed = Signal()

    def __init__(
        self,
        title: str,
        words: str,
        action: str = "",
        show: str = "",
        *,
        tone: str = "warn",
        wide: bool = False,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._tone = tone
        self.setAccessibleName(f"Notice: {title}. {words}")
        self._title = Text(title, "body", 600, wrap=True)
        self._words = Phrase(words, "label", wrap=True)
        self._action = Button(action, "outlined", height=24)
        self._show = Button(show, "quiet", height=24)
        self._close = IconButton("x", "Dismiss this notice", size=24)
        self._action.setVisible(bool(action))
        self._show.setVisible(bool(show))
        self._action.clicked.connect(self.action_requested)
        self._show.clicked.connect(self.evidence_requested)
        self._close.clicked.connect(self.dismissed)
        self._build_wide() if wide else self._build_tall()

    def _build_tall(self) -> None:
        vbox(
            self._title,
            self._words,
            7,
            self._buttons(),
            parent=self,
            margins=(37, 11, 10, 11),
            spacing=2,
        )

    def _build_wide(self) -> None:
        line = hbox(parent=self, margins=(44, 12, 14, 12))
        words = vbox(self._title, self._words, spacing=0)
        add(line, (words, 1), 16, self._buttons())
        self._close.hide()

    def _buttons(self) -> QHBoxLayout:
        buttons = hbox(self._action, self._show, STRETCH, spacing=8)
        buttons.addWidget(self._close, 0, Qt.AlignmentFlag.AlignRight)
        return buttons

    def paintEvent(self, event: QPaintEvent) -> None:
        fill, edge, tone, icon = _LOOKS[self._tone]
        with paint.painting(self) as painter:
            paint.box(painter, self.rect(), fill, edge, 8)
            wide = self._close.isHidden()
            at = QPointF(16, self.height() / 2 - 8) if wide else QPointF(12, 13)
            paint.icon(painter, at, icon, tone, 16)
