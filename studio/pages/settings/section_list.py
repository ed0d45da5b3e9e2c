"""List of sections at the left of a page: icon and name; arrow keys move."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QModelIndex, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from studio.models.paged import Index
from studio.models.rows import RowsModel
from studio.widgets.painting import paint

WIDTH, ROW_PX = 184, 36


@dataclass(frozen=True)
class Section:
    """Section of a page: id, name, icon."""

    key: str
    words: str
    icon: str


class _SectionModel(RowsModel[Section]):
    columns = ("Section",)

    def cell(self, row: Section, column: int, role: int) -> Any:
        shown = role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole)
        return row.words if shown else None


class _SectionDelegate(QStyledItemDelegate):
    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(WIDTH, ROW_PX)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        section = index.data(Qt.ItemDataRole.UserRole)
        rect = QRectF(option.rect).adjusted(0, 2, 0, -2)  # type: ignore[attr-defined]
        state = option.state  # type: ignore[attr-defined]
        chosen = bool(state & QStyle.StateFlag.State_Selected)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if chosen or state & QStyle.StateFlag.State_MouseOver:
            paint.box(painter, rect, "selection" if chosen else "hover", None, 6)
        at = rect.topLeft() + QPointF(10, rect.height() / 2 - 8)
        paint.icon(painter, at, section.icon, "accent" if chosen else "muted", 16)
        words = rect.adjusted(36, 0, -8, 0)
        tone = "text" if chosen else "muted"
        paint.text(painter, words, section.words, tone, "body", 600 if chosen else 400)
        if state & QStyle.StateFlag.State_HasFocus:
            paint.focus_ring(painter, rect, 6)
        painter.restore()


class SectionList(QListView):
    """Section list: `SectionList([Section("keys", "API keys", "key-round")], "Settings")`; emits
    `chosen(key)`."""

    chosen = Signal(str)

    def __init__(
        self, sections: Sequence[Section], name: str, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._model = _SectionModel(self)
        self._model.set_rows(sections)
        self.setModel(self._model)
        self.setItemDelegate(_SectionDelegate(self))
        self.setAccessibleName(name)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setMouseTracking(True)
        self.setUniformItemSizes(True)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setProperty("transparent", True)
        self.viewport().setAutoFillBackground(False)
        self.setFixedWidth(WIDTH)
        self.setMinimumHeight(ROW_PX * len(sections) + 2)
        self.select(sections[0].key)
        self.selectionModel().currentChanged.connect(self._changed)

    def section(self) -> str:
        """Return the key of the selected section."""
        return str(self.currentIndex().data(Qt.ItemDataRole.UserRole).key)

    def select(self, key: str) -> None:
        """Select a section by its key; emits `chosen` if it was another one."""
        keys = [section.key for section in self._model.rows]
        self.setCurrentIndex(self._model.index(keys.index(key), 0))

    def _changed(self, index: QModelIndex) -> None:
        if index.isValid():
            self.chosen.emit(index.data(Qt.ItemDataRole.UserRole).key)
