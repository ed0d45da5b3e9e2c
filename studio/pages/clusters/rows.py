"""Row of a cluster in the list: state, actions and problem."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from studio.store.servers.cluster_rows import ClusterRow
from studio.theme.theme import theme
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.tables.status_dot import Dot
from studio.widgets.text.text import Text


class ClusterRowView(QWidget):
    """Row of a cluster: `show_row(row, testing)`. Emits `pressed(verb)`: test, edit or remove."""

    pressed = Signal(str)

    def __init__(self, first: bool, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._first = first
        self._dot, self._name = Dot(), Text("", "body", 600)
        self._words = Text("", "label", 400, "muted", elide=True)
        self._facts = Text("", "caption", 400, "faint", elide=True)
        self._problem = Text("", "caption", 400, "bad", wrap=True, selectable=True)
        self._test = Button("Test connection", "outlined", icon="plug-zap", height=28)
        self._edit = Button("Edit", "quiet", icon="pencil", height=28)
        self._remove = Button("Remove", "quiet", icon="trash-2", height=28)
        self._build()

    def paintEvent(self, event: object) -> None:
        if not self._first:
            with paint.painting(self) as painter:
                painter.fillRect(0, 0, self.width(), 1, theme().color("border"))

    def show_row(self, row: ClusterRow, testing: bool) -> None:
        """Show a cluster; `testing`: a connection test is running."""
        self.setAccessibleName(f"{row.name}, {row.words}")
        self._dot.set_state(row.dot)
        self._name.set_words(row.name)
        self._words.set_words(row.words)
        self._facts.set_words(row.facts)
        self._problem.set_words(row.problem)
        self._problem.setVisible(bool(row.problem))
        self._test.set_busy("Testing…" if testing else None)
        for button, words in ((self._test, "Test connection"), (self._edit, "Edit"),
                              (self._remove, "Remove")):  # fmt: skip
            button.setAccessibleDescription(f"{words}: {row.name}")

    def _build(self) -> None:
        head = hbox(
            self._dot, self._name, (self._words, 1), self._test, self._edit, self._remove, spacing=8
        )
        below = vbox(self._facts, self._problem, margins=(18, 0, 0, 0), spacing=4)
        vbox(head, below, parent=self, margins=(0, 4 if self._first else 8, 0, 10), spacing=2)
        for button, verb in ((self._test, "test"), (self._edit, "edit"), (self._remove, "remove")):
            button.clicked.connect(lambda _=False, verb=verb: self.pressed.emit(verb))
