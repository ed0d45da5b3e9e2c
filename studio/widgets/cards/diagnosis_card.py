"""Card of a diagnosis: figure, cause, cost, one suggested change and a way to see it."""

from PySide6.QtCore import QPointF, Qt, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from studio.widgets.controls.buttons import Button, IconButton
from studio.widgets.painting import paint
from studio.widgets.text.phrase import Phrase
from studio.widgets.text.text import Text

# tone -> (fill, edge, icon tone, icon)
_LOOKS = {
    "warn": ("warn-soft", "warn-line", "warn", "triangle-alert"),
    "info": ("surface", "border", "info", "search-check"),
}


class DiagnosisCard(QWidget):
    """Diagnosis: `DiagnosisCard(title, words, action, show)`; the tone `info` is for purely
    informative ones."""

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
        column = QVBoxLayout(self)
        column.setContentsMargins(37, 11, 10, 11)
        column.setSpacing(2)
        column.addWidget(self._title)
        column.addWidget(self._words)
        column.addSpacing(7)
        column.addLayout(self._buttons())

    def _build_wide(self) -> None:
        line = QHBoxLayout(self)
        line.setContentsMargins(44, 12, 14, 12)
        words = QVBoxLayout()
        words.setSpacing(0)
        words.addWidget(self._title)
        words.addWidget(self._words)
        line.addLayout(words, 1)
        line.addSpacing(16)
        line.addLayout(self._buttons())
        self._close.hide()

    def _buttons(self) -> QHBoxLayout:
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        buttons.addWidget(self._action)
        buttons.addWidget(self._show)
        buttons.addStretch(1)
        buttons.addWidget(self._close, 0, Qt.AlignmentFlag.AlignRight)
        return buttons

    def paintEvent(self, event: QPaintEvent) -> None:
        fill, edge, tone, icon = _LOOKS[self._tone]
        with paint.painting(self) as painter:
            paint.box(painter, self.rect(), fill, edge, 8)
            wide = self._close.isHidden()
            at = QPointF(16, self.height() / 2 - 8) if wide else QPointF(12, 13)
            paint.icon(painter, at, icon, tone, 16)
