"""Row of a cluster in the list: state, actions and problem."""

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QApplication, QWidget

from studio.store.servers.cluster_rows import ClusterRow
from studio.theme.plain_tooltips import set_tip
from studio.theme.theme import theme
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.tables.status_dot import Dot
from studio.widgets.text.text import Text

VERBS = ("connect", "start", "stop", "test", "copy", "edit", "remove")
BUSY = {"test": "Testing…", "start": "Starting…", "stop": "Stopping…"}
COPY = "Launch command"


class ClusterRowView(QWidget):
    """Row of a cluster: `show_row(row, busy)`. Emits `pressed(verb)`: connect, start, stop, test,
    edit or remove."""

    pressed = Signal(str)

    def __init__(self, first: bool, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._first = first
        self._command = ""
        self._dot, self._name = Dot(), Text("", "body", 600)
        self._words = Text("", "label", 400, "muted", elide=True)
        self._facts = Text("", "caption", 400, "faint", elide=True)
        self._problem = Text("", "caption", 400, "bad", wrap=True, selectable=True)
        self._log = Text("", "mono-small", 400, "muted", wrap=True, selectable=True)
        self._connect = Button("Connect", "outlined", icon="plug-zap", height=28)
        self._start = Button("Start", "outlined", icon="play", height=28)
        self._stop = Button("Stop", "outlined", icon="square", height=28)
        self._test = Button("Test connection", "outlined", icon="plug-zap", height=28)
        self._copy = Button(COPY, "quiet", icon="copy", height=28)
        self._edit = Button("Edit", "quiet", icon="pencil", height=28)
        self._remove = Button("Remove", "quiet", icon="trash-2", height=28)
        buttons = (self._connect, self._start, self._stop, self._test, self._copy, self._edit,
                   self._remove)  # fmt: skip
        self._buttons = dict(zip(VERBS, buttons, strict=True))
        self._build()

    def paintEvent(self, event: object) -> None:
        if not self._first:
            with paint.painting(self) as painter:
                painter.fillRect(0, 0, self.width(), 1, theme().color("border"))

    def show_row(self, row: ClusterRow, busy: str = "", share: float | None = None) -> None:
        """Show a cluster; `busy` is the action in progress (test, start or stop; empty: none) and
        `share` its progress, 0 to 1 (None: unknown)."""
        self.setAccessibleName(f"{row.name}, {row.words}")
        self._dot.set_state(row.dot)
        self._name.set_words(row.name)
        self._words.set_words(row.words)
        self._facts.set_words(row.facts)
        self._problem.set_words(row.problem)
        self._problem.setVisible(bool(row.problem))
        self._log.set_words(row.log)
        self._log.setVisible(bool(row.log))
        self._command = row.command
        for verb, words in BUSY.items():
            self._buttons[verb].set_busy(words if verb == busy else None, share)
        self._show_buttons(row, busy)

    def _show_buttons(self, row: ClusterRow, busy: str) -> None:
        focused = next((one for one in self._buttons.values() if one.hasFocus()), None)
        shown = {*row.actions, "edit", "remove"}
        if busy in ("start", "stop"):
            shown = {busy, *shown - BUSY.keys()}
        for verb, button in self._buttons.items():
            button.setVisible(verb in shown)
            button.setAccessibleDescription(f"{button.words()}: {row.name}")
        if focused is not None and focused.isHidden():
            next(one for one in self._buttons.values() if not one.isHidden()).setFocus()

    def _copy_command(self) -> None:
        QApplication.clipboard().setText(self._command)
        self._copy.set_words("Copied")
        QTimer.singleShot(1000, self._copy, lambda: self._copy.set_words(COPY))

    def _build(self) -> None:
        set_tip(self._stop, "Stop SkyRL there; its checkpoints stay")
        set_tip(self._start, "Start SkyRL there with the same settings")
        set_tip(self._copy, "Copy the command with which SkyRL was started")
        head = hbox(self._dot, self._name, (self._words, 1), *self._buttons.values(), spacing=8)
        below = vbox(self._facts, self._problem, self._log, margins=(18, 0, 0, 0), spacing=4)
        vbox(head, below, parent=self, margins=(0, 4 if self._first else 8, 0, 10), spacing=2)
        self._copy.clicked.connect(self._copy_command)
        for verb, button in self._buttons.items():
            if verb != "copy":
                button.clicked.connect(lambda _=False, verb=verb: self.pressed.emit(verb))
