"""Toast: a message on its own line at the bottom of its column, shown for six seconds, with an Undo
button."""

from PySide6.QtCore import QEvent, QPointF, QRect, QTimer, Signal
from PySide6.QtGui import QEnterEvent, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from studio.widgets.controls.buttons import Button, IconButton
from studio.widgets.layouts import STRETCH, hbox
from studio.widgets.painting import paint
from studio.widgets.text.phrase import Phrase, Span

SHOWN_MS = 6000
WIDEST_PX = 640
"""Largest width of the text; longer messages wrap."""
SIDE_PX, ICON_PX, EDGE_PX = 16, 36, 8
"""Space beside the box; inside of it before the text, and after the last button."""


class Toast(QWidget):
    """Toast: `toast.say("6 labelled best. Advantages changed for 2 of 8.", undo="Undo")`. Its owner
    adds it to a layout: what it needs is taken from the page above, so it covers nothing."""

    undo_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._tone, self._icon = "good", "check"
        self._words = Phrase((), "label", wrap=True)
        self._undo = Button("Undo", "quiet", height=24, key="U")
        self._close = IconButton("x", "Dismiss", size=24)
        self._wait = QTimer(self)
        self._wait.setSingleShot(True)
        self._wait.setInterval(SHOWN_MS)
        self._wait.timeout.connect(self.hide)
        self._undo.clicked.connect(self._undone)
        self._close.clicked.connect(self.hide)
        line = hbox(STRETCH, self._words, self._undo, self._close, STRETCH, parent=self, spacing=8)
        line.setContentsMargins(SIDE_PX + ICON_PX, 14, SIDE_PX + EDGE_PX, 14)
        self.hide()

    def say(self, words: str, *, undo: str = "", tone: str = "good", icon: str = "check") -> None:
        """Show a message, replacing the previous one. `undo` labels its button (empty: none)."""
        self._tone, self._icon = tone, icon
        self._words.set_spans([Span(words, "text")])
        self._undo.setVisible(bool(undo))
        if undo:
            self._undo.set_words(undo)
        self.setAccessibleName(words)
        self._fit()
        self.show()
        self._wait.start()

    def words(self) -> str:
        """Current message; empty if none is shown."""
        return self._words.words() if self.isVisible() else ""

    def box(self) -> QRect:
        """Return the rectangle that is painted, around text and buttons."""
        left = self._words.x() - ICON_PX
        right = self._close.geometry().right() + EDGE_PX
        return QRect(left, 6, right - left, self.height() - 12)

    def _undone(self) -> None:
        self.hide()
        self.undo_requested.emit()

    def _fit(self) -> None:
        """Give the text the width it needs, at most WIDEST_PX and what the column has."""
        owner = self.parentWidget()
        column = self.width() if self.isVisible() or owner is None else owner.width()
        buttons = (self._undo, self._close) if not self._undo.isHidden() else (self._close,)
        others = sum(button.sizeHint().width() + 8 for button in buttons)
        room = max(120, column - 2 * SIDE_PX - ICON_PX - EDGE_PX - others)
        natural = round(paint.text_width(self._words.words(), "label", 400)) + 4
        width = min(natural, room, WIDEST_PX)
        self._words.setFixedSize(width, self._words.heightForWidth(width))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self._fit()

    def enterEvent(self, event: QEnterEvent) -> None:
        self._wait.stop()

    def leaveEvent(self, event: QEvent) -> None:
        self._wait.start()

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            box = self.box()
            paint.box(painter, box, "raised", "border-strong", 8)
            at = QPointF(box.left() + 12, self.height() / 2 - 8)
            paint.icon(painter, at, self._icon, self._tone, 16)
