"""Text inputs: a line of text, and a search line with icon, shortcut and delay."""

from PySide6.QtCore import QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QLineEdit, QSizePolicy, QWidget

from studio.theme.theme import theme
from studio.widgets.controls.buttons import IconButton
from studio.widgets.painting import paint
from studio.widgets.painting.focus import KeyboardFocus


class LineInput(KeyboardFocus, QLineEdit):
    """Line of text, 32 px high (28 compact); `set_problem` colours its edge."""

    def __init__(
        self,
        name: str,
        placeholder: str = "",
        *,
        mono: bool = False,
        compact: bool = False,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.setAccessibleName(name)
        self.setPlaceholderText(placeholder)
        self.setFont(theme().font("mono" if mono else "body"))
        self.setProperty("compact", compact)
        self.setFixedHeight(28 if compact else 32)

    def set_problem(self, problem: bool) -> None:
        """Draw the edge in the error colour if `problem`; the message belongs under the field."""
        self.setProperty("problem", problem)
        self.style().unpolish(self)
        self.style().polish(self)


class SearchInput(LineInput):
    """Search line: `search_changed` is emitted 150 ms after the last key; Escape clears."""

    search_changed = Signal(str)

    def __init__(
        self,
        name: str,
        placeholder: str = "",
        *,
        key: str = "/",
        compact: bool = False,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(name, placeholder or name, compact=compact, parent=parent)
        self._key = key
        self.setTextMargins(24, 0, 24, 0)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._wait = QTimer(self)
        self._wait.setSingleShot(True)
        self._wait.setInterval(150)
        self._wait.timeout.connect(lambda: self.search_changed.emit(self.text()))
        self._clear = IconButton("x", "Clear search", size=24, parent=self)
        self._clear.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._clear.clicked.connect(self._cleared)
        self._clear.hide()
        self.textChanged.connect(self._typed)

    def _typed(self, words: str) -> None:
        self._clear.setVisible(bool(words))
        self._wait.start()

    def _cleared(self) -> None:
        self.clear()
        self._wait.stop()
        self.search_changed.emit("")

    def sizeHint(self) -> QSize:
        return QSize(220, super().sizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._clear.move(self.width() - 28, (self.height() - 24) // 2)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self.text():
            self._cleared()
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        with paint.painting(self) as painter:
            middle = self.height() / 2
            paint.icon(painter, paint.QPointF(10, middle - 8), "search", "muted", 16)
            if self._key and not self.text() and not self.hasFocus():
                cap = QRectF(self.width() - 26, middle - 9, 18, 18)
                paint.box(painter, cap, None, "border-strong", 4)
                paint.text(painter, cap, self._key, "faint", "mono-small", align=paint.CENTER)
