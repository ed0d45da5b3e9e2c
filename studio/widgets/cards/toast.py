"""Toast at the bottom of the window: a message shown for six seconds, with an Undo button."""

from PySide6.QtCore import QEvent, QObject, QPointF, QTimer, Signal
from PySide6.QtGui import QEnterEvent, QPaintEvent
from PySide6.QtWidgets import QWidget

from studio.widgets.controls.buttons import Button, IconButton
from studio.widgets.layouts import hbox
from studio.widgets.painting import paint
from studio.widgets.text.text import Text

SHOWN_MS = 6000


class Toast(QWidget):
    """Toast: `toast.say("6 labelled best. Advantages changed for 2 of 8.", undo="Undo")`."""

    undo_requested = Signal()

    def __init__(self, host: QWidget) -> None:
        super().__init__(host)
        self._host = host
        self._tone, self._icon = "good", "check"
        self._words = Text("", "label", 400)
        self._undo = Button("Undo", "quiet", height=24, key="U")
        self._close = IconButton("x", "Dismiss", size=24)
        self._wait = QTimer(self)
        self._wait.setSingleShot(True)
        self._wait.setInterval(SHOWN_MS)
        self._wait.timeout.connect(self.hide)
        self._undo.clicked.connect(self._undone)
        self._close.clicked.connect(self.hide)
        hbox(self._words, self._undo, self._close, parent=self, margins=(36, 6, 8, 6), spacing=8)
        host.installEventFilter(self)
        self.hide()

    def say(self, words: str, *, undo: str = "", tone: str = "good", icon: str = "check") -> None:
        """Show a message, replacing the previous one. `undo` labels its button (empty: none)."""
        self._tone, self._icon = tone, icon
        self._words.set_words(words)
        self._undo.setVisible(bool(undo))
        if undo:
            self._undo.set_words(undo)
        self.setAccessibleName(words)
        self.adjustSize()
        self._place()
        self.show()
        self.raise_()
        self._wait.start()

    def words(self) -> str:
        """Current message; empty if none is shown."""
        return self._words.words() if self.isVisible() else ""

    def _undone(self) -> None:
        self.hide()
        self.undo_requested.emit()

    def _place(self) -> None:
        left = (self._host.width() - self.width()) // 2
        self.move(max(8, left), self._host.height() - self.height() - 16)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize and not self.isHidden():
            self._place()
        return False

    def enterEvent(self, event: QEnterEvent) -> None:
        self._wait.stop()

    def leaveEvent(self, event: QEvent) -> None:
        self._wait.start()

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint.box(painter, self.rect(), "raised", "border-strong", 8)
            paint.icon(painter, QPointF(12, self.height() / 2 - 8), self._icon, self._tone, 16)
