"""Log of the run at the bottom of the page; follows new lines until the user scrolls up."""

from datetime import datetime

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QHideEvent, QPainter, QShowEvent
from PySide6.QtWidgets import QFrame, QListView, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from studio.models.log import LogListModel
from studio.models.paged import Index
from studio.models.run import RunModel
from studio.store.runs.parts import LogLine
from studio.widgets.cards.card import Card
from studio.widgets.controls.buttons import IconButton
from studio.widgets.layouts import vbox
from studio.widgets.painting import paint

TONES = {"info": "muted", "warning": "warn", "error": "bad"}
ROW_PX = 20


class _LineDelegate(QStyledItemDelegate):
    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(200, ROW_PX)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        line: LogLine = index.data(Qt.ItemDataRole.UserRole)
        rect = QRectF(option.rect).adjusted(12, 0, -12, 0)  # type: ignore[attr-defined]
        clock = datetime.fromtimestamp(line.at).strftime("%H:%M:%S")
        painter.save()
        paint.text(painter, rect, clock, "faint", "mono-small")
        source = rect.adjusted(72, 0, 0, 0)
        paint.text(painter, source, line.source, "faint", "mono-small")
        words = index.data(Qt.ItemDataRole.DisplayRole).removeprefix(f"{line.source}: ")
        text = rect.adjusted(136, 0, 0, 0)
        first = words.splitlines()[0] if words else ""
        paint.text(painter, text, first, TONES.get(line.level, "muted"), "mono-small")
        painter.restore()


class LogDrawer(QWidget):
    """Log drawer; the page shows and hides it."""

    closed = Signal()

    def __init__(self, run: RunModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedHeight(196)
        self._model = LogListModel(run, self)
        card = Card("Log", "output of engine, policy and agent", padding=0)
        close = IconButton("x", "Close the log")
        close.clicked.connect(self.closed)
        assert card.header is not None
        card.header.add_right(close)
        self._list = QListView()
        self._list.setAccessibleName("Log")
        self._list.setModel(self._model)
        self._list.setItemDelegate(_LineDelegate(self._list))
        self._list.setUniformItemSizes(True)
        self._list.setFrameShape(QFrame.Shape.NoFrame)
        card.body.addWidget(self._list)
        vbox(card, parent=self)
        self._at_end = True
        """Whether the view was scrolled to its end when it was hidden and lost its layout."""
        self._model.rowsInserted.connect(self._follow)
        self._model.modelReset.connect(self._begin)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._at_end:
            self._list.scrollToBottom()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._at_end = self._is_at_end()

    def _is_at_end(self) -> bool:
        bar = self._list.verticalScrollBar()
        return bar.value() >= bar.maximum() - 2 * ROW_PX

    def _begin(self) -> None:
        self._at_end = True
        if self.isVisible():
            self._list.scrollToBottom()

    def _follow(self) -> None:
        if self.isVisible() and self._is_at_end():
            self._list.scrollToBottom()
