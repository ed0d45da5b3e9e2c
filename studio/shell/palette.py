"""Command palette (Ctrl K) and shortcut sheet (?), both built from studio.actions.actions."""

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QEvent, QModelIndex, QObject, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QKeyEvent, QKeySequence, QPainter, QPaintEvent, QShortcut
from PySide6.QtWidgets import (
    QDialog,
    QFrame,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from studio.actions.actions import Actions, ActionSpec
from studio.models.paged import Index
from studio.models.rows import RowsModel
from studio.models.shortcuts import key_words
from studio.pages.settings.shortcuts import ShortcutList
from studio.widgets.controls.inputs import SearchInput
from studio.widgets.layouts import vbox
from studio.widgets.painting import paint
from studio.widgets.text.text import Text

ROW_PX = 36
SHOWN_ROWS = 9


class CommandListModel(RowsModel[ActionSpec]):
    """Actions that match the typed text; `UserRole` returns the ActionSpec."""

    columns = ("Action",)

    def __init__(self, specs: Sequence[ActionSpec], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._all = specs
        self.set_rows(specs)

    def search(self, words: str) -> None:
        """Show only the actions that match the text."""
        wanted = words.casefold().split()
        self.set_rows([s for s in self._all if all(w in _haystack(s) for w in wanted)])

    def cell(self, spec: ActionSpec, column: int, role: int) -> Any:
        shown = role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole)
        return spec.text if shown else None


def _haystack(spec: ActionSpec) -> str:
    return f"{spec.place} {spec.text}".casefold()


class _CommandDelegate(QStyledItemDelegate):
    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(200, ROW_PX)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        spec = index.data(Qt.ItemDataRole.UserRole)
        rect = QRectF(option.rect)  # type: ignore[attr-defined]
        chosen = bool(option.state & QStyle.StateFlag.State_Selected)  # type: ignore[attr-defined]
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if chosen:
            paint.box(painter, rect.adjusted(4, 1, -4, -1), "selection", radius=6)
        middle = rect.center().y()
        paint.icon(painter, rect.topLeft() + QPointF(14, ROW_PX / 2 - 8), spec.icon, "muted")
        words = QRectF(rect.left() + 42, rect.top(), rect.width() - 160, rect.height())
        paint.text(painter, words, spec.text, "text", "body")
        keys = QRectF(rect.right() - 116, middle - 10, 104, 20)
        paint.text(painter, keys, key_words(spec), "faint", "mono-small", align=paint.RIGHT)
        painter.restore()


class CommandPalette(QDialog):
    """Command palette; closes when it loses the focus."""

    def __init__(self, window: QWidget, actions: Actions) -> None:
        super().__init__(window, Qt.WindowType.Popup | Qt.WindowType.FramelessWindowHint)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setAttribute(Qt.WidgetAttribute.WA_TranslucentBackground)  # around its corners
        self._actions = actions
        self._model = CommandListModel(actions.available(), self)
        self._input = SearchInput("Find a command", "Find a command", key="Ctrl K")
        self._list = QListView()
        self._list.setModel(self._model)
        self._list.setItemDelegate(_CommandDelegate(self._list))
        self._list.setAccessibleName("Commands")
        self._build(window)
        self._input.textChanged.connect(self._search)
        self._list.activated.connect(self._run)
        self._list.clicked.connect(self._run)
        self._input.installEventFilter(self)
        self._select(0)

    def _build(self, window: QWidget) -> None:
        self._list.setFrameShape(QFrame.Shape.NoFrame)
        self._none = Text("", "body", tone="muted", wrap=True)
        self._none.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._none.hide()
        inside = (self._input, (self._list, 1), (self._none, 1))
        vbox(*inside, parent=self, margins=9, spacing=8)
        self.resize(522, 50 + 16 + SHOWN_ROWS * ROW_PX)
        corner = window.mapToGlobal(window.rect().topLeft())
        self.move(corner.x() + (window.width() - self.width()) // 2, corner.y() + 88)
        self._input.setFocus()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            move = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1}.get(Qt.Key(event.key()))
            if move is not None:
                self._select(self._list.currentIndex().row() + move)
                return True
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self._run(self._list.currentIndex())
                return True
            if event.key() == Qt.Key.Key_Escape:
                self.close()
                return True
        return super().eventFilter(watched, event)

    def _search(self, words: str) -> None:
        self._model.search(words)
        found = self._model.rowCount() > 0
        self._list.setVisible(found)
        self._none.setVisible(not found)
        self._none.set_words(
            f"No command matches “{words.strip()}”.\nCommands of a run or project appear while one "
            "is open."
        )
        self._select(0)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint.box(painter, self.rect(), "raised", "border-strong", 8)

    def _select(self, row: int) -> None:
        count = self._model.rowCount()
        if count:
            self._list.setCurrentIndex(self._model.index(row % count, 0))

    def _run(self, index: QModelIndex) -> None:
        spec = index.data(Qt.ItemDataRole.UserRole) if index.isValid() else None
        if spec is not None:
            self.close()
            self._actions.trigger(spec.id)


class ShortcutSheet(QDialog):
    """Sheet with all keyboard shortcuts and a search field."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Keyboard shortcuts")
        self.resize(620, 640)
        self.shortcuts = ShortcutList()
        vbox(self.shortcuts, parent=self)
        QShortcut(QKeySequence("/"), self, self.shortcuts.search.setFocus)
        self.shortcuts.search.setFocus()
