"""Filter field with completion: suggestions below it, what they mean beside them."""

from typing import Any

from PySide6.QtCore import QEvent, QModelIndex, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QCompleter,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from engine.protocol.requests.runs import FilterNames
from studio.models.paged import Index
from studio.models.rows import RowsModel
from studio.pages.trajectories.filters.completion import Completion, Suggestion, complete
from studio.theme.theme import theme
from studio.widgets.controls.inputs import SearchInput
from studio.widgets.painting import paint
from studio.widgets.transcript.items import plain

EXAMPLE = "Filter: words, or reward < 0.2 and tool:search"
ROW_PX, POPUP_PX, SHOWN_ROWS = 28, 420, 10


class SuggestionModel(RowsModel[Suggestion]):
    """List model of suggestions; `UserRole` returns the Suggestion."""

    columns = ("Suggestion",)

    def cell(self, row: Suggestion, column: int, role: int) -> Any:
        shown = role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole)
        return f"{plain(row.words)} {row.help}".strip() if shown else None


class _SuggestionDelegate(QStyledItemDelegate):
    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(POPUP_PX, ROW_PX)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        suggestion = index.data(Qt.ItemDataRole.UserRole)
        rect = QRectF(option.rect)  # type: ignore[attr-defined]
        state = option.state  # type: ignore[attr-defined]
        painter.save()
        if state & QStyle.StateFlag.State_Selected:
            painter.fillRect(rect, theme().color("selection"))
        elif state & QStyle.StateFlag.State_MouseOver:
            painter.fillRect(rect, theme().color("hover"))
        inner = rect.adjusted(12, 0, -12, 0)
        used = paint.text(painter, inner, plain(suggestion.words), "text", "mono")
        rest = inner.adjusted(used + 16, 0, 0, 0)
        paint.text(painter, rest, suggestion.help, "muted", "label", 400, paint.RIGHT)
        painter.restore()


class FilterInput(SearchInput):
    """Filter field. Ctrl+Space or ↓ opens the suggestions, ↑ ↓ select, Tab or Enter inserts. Emits
    `names_wanted` when it gets the keyboard focus."""

    names_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Filter trajectories", EXAMPLE, compact=True, parent=parent)
        self._names = FilterNames()
        self._completion = Completion(0)
        self._model = SuggestionModel(self)
        self.popup = QListView()
        self.popup.setProperty("popup", True)
        self.popup.setUniformItemSizes(True)
        self.popup.setMouseTracking(True)
        self.popup.setAccessibleName("Suggestions")
        self.popup.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._completer = QCompleter(self._model, self)
        self._completer.setCompletionMode(QCompleter.CompletionMode.UnfilteredPopupCompletion)
        self._completer.setPopup(self.popup)
        self._completer.setWidget(self)
        self._completer.setMaxVisibleItems(SHOWN_ROWS)
        self.popup.setItemDelegate(_SuggestionDelegate(self.popup))  # QCompleter has set its own
        self.popup.clicked.connect(self._insert)
        self.textEdited.connect(lambda _: self.suggest())

    def set_names(self, names: FilterNames) -> None:
        """Set the names to suggest: those that occur in the run."""
        self._names = names
        if self.popup.isVisible():
            self.suggest()

    def suggest(self) -> None:
        """Show what may follow at the cursor, or hide the suggestions if nothing may."""
        self._completion = complete(self.text(), self.cursorPosition(), self._names)
        suggestions = self._completion.suggestions
        if not suggestions:
            self.popup.hide()
            return
        self._model.set_rows(suggestions)
        self.popup.setCurrentIndex(QModelIndex())
        rect = self.rect()
        rect.setLeft(max(0, min(self.cursorRect().left(), self.width() - POPUP_PX)))
        rect.setWidth(min(POPUP_PX, self.width()))
        self._completer.complete(rect)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = event.key()
        if self.popup.isVisible() and key in (Qt.Key.Key_Tab, Qt.Key.Key_Return, Qt.Key.Key_Enter):
            index = self.popup.currentIndex()
            if key == Qt.Key.Key_Tab and not index.isValid():
                index = self._model.index(0, 0)
            self.popup.hide()
            if index.isValid():
                self._insert(index)
                return
        control = bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
        if key == Qt.Key.Key_Down or (control and key == Qt.Key.Key_Space):
            self.suggest()
            return
        super().keyPressEvent(event)

    def event(self, event: QEvent) -> bool:
        """Insert a suggestion with Tab, before Qt moves the focus."""
        tabbed = isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Tab
        if tabbed and event.type() == QEvent.Type.KeyPress and self.popup.isVisible():
            self.keyPressEvent(event)  # type: ignore[arg-type]
            return True
        return super().event(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        if event.reason() != Qt.FocusReason.PopupFocusReason:
            self.names_wanted.emit()

    def _insert(self, index: Index) -> None:
        suggestion = index.data(Qt.ItemDataRole.UserRole)
        if suggestion is None:
            return
        self.popup.hide()
        text, cursor = self._completion.applied(self.text(), self.cursorPosition(), suggestion)
        self.setText(text)
        self.setCursorPosition(cursor)
        if suggestion.insert[-1] in ': "':
            self.suggest()
