"""Table of draft scenarios, operable by keyboard, with the selected scenario in full below."""

from collections.abc import Callable

from PySide6.QtCore import QModelIndex, Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QAbstractItemView, QWidget

from studio.actions.keymap import DRAFT
from studio.models.draft import DraftTableModel
from studio.widgets.controls.buttons import Button
from studio.widgets.forms.text_area import TextArea
from studio.widgets.layouts import hbox, vbox
from studio.widgets.tables.table import Table
from studio.widgets.text.text import Text

ROW_PX, LEAST_PX, WHOLE_PX = 30, 220, 76
BUTTONS = (
    ("Add", "plus", "A", "draft.add"),
    ("Training or validation", "split", "S", "draft.split"),
    ("Delete", "trash-2", "Del", "draft.delete"),
)
WIDTHS = (60, None, 84, 84)


class ScenarioTable(QWidget):
    """Table over a DraftTableModel with the shortcuts of `keymap.DRAFT`."""

    edited = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.model = DraftTableModel(self)
        self.table = Table("Scenarios", row_px=ROW_PX)
        self.whole = TextArea("Scenario input", "Select a scenario to read it in full.",
                              least_px=WHOLE_PX)  # fmt: skip
        self.words = Text("", "label", 400, "muted", elide=True)
        self._build()
        self._wire()

    def begin(self) -> None:
        self.model.begin()
        self._show_whole()

    def _build(self) -> None:
        self.table.setModel(self.model)
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.table.setMinimumHeight(LEAST_PX)
        self.whole.setMaximumHeight(WHOLE_PX)
        for column, (width, kind) in enumerate(
            zip(WIDTHS, ("check", "text", "text", "text"), strict=True)
        ):
            self.table.set_column(column, width, kind)
        line = hbox(Text("Scenarios", "label", 600), 8, (self.words, 1), spacing=4)
        handlers = self._handlers()
        for words, icon, shown, id in BUTTONS:
            button = Button(words, "quiet", icon=icon, key=shown)
            button.clicked.connect(lambda _=False, call=handlers[id]: call(0))
            line.addWidget(button)
        vbox(line, (self.table, 1), self.whole, parent=self, spacing=6)

    def _wire(self) -> None:
        handlers = self._handlers()
        for key in DRAFT:
            for place, sequence in enumerate(key.sequences):
                shortcut = QShortcut(QKeySequence(sequence), self.table)
                shortcut.setContext(Qt.ShortcutContext.WidgetShortcut)
                shortcut.activated.connect(lambda call=handlers[key.id], at=place: call(at))
        self.table.row_opened.connect(lambda _: self._edit())
        self.table.row_marked.connect(lambda _: self.model.switch_keep(self._chosen()))
        self.table.clicked.connect(self._clicked)
        self.table.selectionModel().currentRowChanged.connect(lambda *_: self._show_whole())
        self.model.modelReset.connect(self._show_whole)
        self.model.edited.connect(self.edited)
        self.whole.edited.connect(self._write)

    def _handlers(self) -> dict[str, Callable[[int], object]]:
        return {
            "draft.add": lambda _: self._add(),
            "draft.edit": lambda _: self._edit(),
            "draft.keep": lambda _: self.model.switch_keep(self._chosen()),
            "draft.split": lambda _: self.model.switch_split(self._chosen()),
            "draft.difficulty": lambda place: self.model.set_difficulty(self._chosen(), place),
            "draft.delete": lambda _: self._delete(),
        }

    def _chosen(self) -> list[int]:
        rows = {index.row() for index in self.table.selectionModel().selectedRows()}
        current = self.table.currentIndex().row()
        return sorted(rows or ({current} if current >= 0 else set()))

    def _clicked(self, index: QModelIndex) -> None:
        if index.column() == 0:
            self.model.switch_keep([index.row()])

    def _add(self) -> None:
        place = self.model.add()
        self.table.selectRow(place)
        self._edit()

    def _edit(self) -> None:
        if self.table.currentIndex().isValid():
            self.whole.setFocus()

    def _delete(self) -> None:
        places = self._chosen()
        if places:
            self.model.delete(set(places))
            left = len(self.model.rows)
            if left:
                self.table.selectRow(min(places[0], left - 1))

    def _show_whole(self) -> None:
        place = self.table.currentIndex().row()
        known = 0 <= place < len(self.model.rows)
        self.whole.set_text(self.model.rows[place].now.input if known else "")
        self.whole.setEnabled(known)

    def _write(self) -> None:
        place = self.table.currentIndex().row()
        if 0 <= place < len(self.model.rows):
            self.model.set_input(place, self.whole.text())
