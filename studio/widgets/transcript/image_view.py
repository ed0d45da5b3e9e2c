"""Image of a transcript, large, over its page; Escape or a click closes it."""

from PySide6.QtCore import QEvent, QObject, QRectF, QSizeF, Qt
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPixmap
from PySide6.QtWidgets import QWidget
from shiboken6 import isValid

from studio.theme.theme import theme
from studio.widgets.controls.buttons import IconButton
from studio.widgets.layouts import STRETCH, hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.text.text import Text
from studio.widgets.transcript.pictures import Decoded

HEAD_PX, MARGIN_PX = 44, 24


class ImageView(QWidget):
    """Image over its `host`: `open(number)`, then `show_image` or `show_problem`."""

    def __init__(self, host: QWidget) -> None:
        super().__init__(host)
        self._host = host
        self._before: QWidget | None = None
        self._pixmap: QPixmap | None = None
        self._number, self._problem = 0, ""
        self._title = Text("", "heading", 600)
        self._close = IconButton("x", "Close", size=28, key="Esc")
        self._close.clicked.connect(self.close_view)
        head = hbox(self._title, STRETCH, self._close, margins=(16, 8, 12, 8))
        vbox(head, STRETCH, parent=self, margins=0)
        host.installEventFilter(self)
        self.hide()

    def open(self, number: int) -> None:
        """Cover the page, for an image that is still loaded."""
        self._before = self.window().focusWidget()
        self._number, self._problem, self._pixmap = number, "", None
        self._name(f"Image {number}")
        self.setGeometry(self._host.rect())
        self.show()
        self.raise_()
        self._close.setFocus(Qt.FocusReason.OtherFocusReason)

    def show_image(self, decoded: Decoded) -> None:
        self._pixmap = QPixmap.fromImage(decoded.image)
        self._name(f"Image {self._number}, {decoded.width:,} × {decoded.height:,}")

    def show_problem(self, words: str) -> None:
        """Show why the image cannot be shown."""
        self._problem = words
        self._name(f"Image {self._number}: {words}")

    def close_view(self) -> None:
        """Uncover the page and restore the previous focus."""
        self.hide()
        self._pixmap = None
        if self._before is not None and isValid(self._before):
            self._before.setFocus(Qt.FocusReason.OtherFocusReason)

    def _name(self, words: str) -> None:
        self._title.set_words(words)
        self.setAccessibleName(words)
        self.update()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize and self.isVisible():
            self.setGeometry(self._host.rect())
        return False

    def event(self, event: QEvent) -> bool:
        """Take Escape before the shortcuts of the page."""
        early = event.type() == QEvent.Type.ShortcutOverride and isinstance(event, QKeyEvent)
        if early and event.key() == Qt.Key.Key_Escape:  # type: ignore[attr-defined]
            event.accept()
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.close_view()
        else:
            super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.close_view()

    def paintEvent(self, event: QPaintEvent) -> None:
        area = QRectF(self.rect()).adjusted(MARGIN_PX, HEAD_PX + 8, -MARGIN_PX, -MARGIN_PX)
        with paint.painting(self) as painter:
            painter.fillRect(self.rect(), theme().color("background"))
            painter.fillRect(QRectF(0, HEAD_PX, self.width(), 1), theme().color("border"))
            if self._pixmap is None:
                words = self._problem or "Loading…"
                paint.text(painter, area, words, "muted", "body", align=paint.CENTER)
                return
            size = QSizeF(self._pixmap.size())
            if size.width() > area.width() or size.height() > area.height():
                size.scale(area.size(), Qt.AspectRatioMode.KeepAspectRatio)
            place = QRectF(area.topLeft(), size)
            place.moveCenter(area.center())
            painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
            painter.drawPixmap(place, self._pixmap, QRectF(self._pixmap.rect()))
            paint.box(painter, place.adjusted(-1, -1, 1, 1), None, "border-strong", 2)
