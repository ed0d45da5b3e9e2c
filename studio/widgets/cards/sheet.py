"""Sheet that slides over the right side of its page, 420 px wide by default; the page stays
readable."""

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QScrollArea, QWidget
from shiboken6 import isValid

from studio.theme.theme import theme
from studio.widgets.controls.buttons import IconButton
from studio.widgets.layouts import hbox, vbox
from studio.widgets.painting.motion import SHEET_MS, Glide
from studio.widgets.text.text import Text

SHEET_PX = 420


class Sheet(QWidget):
    """Sheet: `sheet = Sheet("Export step 40", page)`; fill `sheet.body` and `sheet.foot`; `open()`,
    `close_sheet()`."""

    closed = Signal()

    def __init__(self, title: str, host: QWidget, width_px: int = SHEET_PX) -> None:
        super().__init__(host)
        self._host, self._width_px = host, width_px
        self._before: QWidget | None = None
        self._place = Glide(self, SHEET_MS)
        self._place.valueChanged.connect(self._slide)
        self._place.finished.connect(self._arrived)
        self._title = Text(title, "heading", 600, elide=True)
        close = IconButton("x", "Close", size=28, key="Esc")
        close.clicked.connect(self.close_sheet)
        head = hbox((self._title, 1), close, margins=(16, 10, 12, 10))
        inside = QWidget()
        inside.setProperty("transparent", True)
        self.body = vbox(parent=inside, margins=16, spacing=12)
        self._scroll = QScrollArea()
        self._scroll.setWidget(inside)
        self._scroll.setWidgetResizable(True)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.foot = hbox(margins=(16, 12, 16, 12), spacing=8)
        vbox(head, (self._scroll, 1), self.foot, parent=self, margins=(1, 0, 0, 0), spacing=0)
        self.setAccessibleName(title)
        host.installEventFilter(self)
        self.hide()

    def bring_into_view(self, part: QWidget) -> None:
        """Scroll to the widget `part` after the next layout, when its size is known."""
        QTimer.singleShot(0, part, lambda: self._scroll.ensureWidgetVisible(part, 0, 16))

    def set_title(self, title: str) -> None:
        self._title.set_words(title)
        self.setAccessibleName(title)

    def open(self) -> None:
        """Slide the sheet in and focus its first control."""
        self._before = self.window().focusWidget()
        self._slide()
        self.show()
        self.raise_()
        self._place.to(1.0)
        self.setFocus(Qt.FocusReason.OtherFocusReason)
        self.focusNextChild()

    def close_sheet(self) -> None:
        """Slide out and restore the previous focus."""
        self._place.to(0.0)
        self.closed.emit()
        if self._before is not None and isValid(self._before):  # a list may have deleted it
            self._before.setFocus(Qt.FocusReason.OtherFocusReason)

    def is_open(self) -> bool:
        """Whether the sheet is open: true from `open()` to `close_sheet()`."""
        return self.isVisible() and self._place.endValue() != 0.0

    def _slide(self) -> None:
        width = min(self._width_px, self._host.width())
        left = self._host.width() - round(width * self._place.value)
        self.setGeometry(left, 0, width, self._host.height())

    def _arrived(self) -> None:
        if self._place.value <= 0.0:
            self.hide()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize:
            self._slide()
        return False

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.close_sheet()
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        color = theme().color
        painter = QPainter(self)
        painter.fillRect(self.rect(), color("raised"))
        painter.fillRect(0, 0, 1, self.height(), color("border-strong"))
        painter.fillRect(1, 48, self.width() - 1, 1, color("border"))
        foot = self.foot.geometry()
        if self.foot.count():
            painter.fillRect(1, foot.top(), self.width() - 1, 1, color("border"))
        painter.end()
