"""Sheet that requests a run from the engine and stays open until the run exists."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.problems import Problem
from studio.widgets.cards.sheet import Sheet
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import STRETCH, add
from studio.widgets.text.text import Text


class OrderSheet(Sheet):
    """Base of sheets that start a run. `ordered(request)` is emitted once; the receiver calls
    `close_started` or `refuse`. Entries that were not submitted are kept for the next time on the
    same subject. Subclasses implement `request` and call `show_command` with the equivalent command
    line."""

    ordered = Signal(object)

    def __init__(self, title: str, host: QWidget, go: Button) -> None:
        super().__init__(title, host)
        self._about: object = None
        """Subject, such as a checkpoint, of the fields; None once a run was started."""
        self._command = Text("", "mono-small", 400, "muted", wrap=True, selectable=True)
        self._problem = Text("", "label", 400, "bad", wrap=True, selectable=True)
        self._go = go
        go.clicked.connect(self._accept)

    def request(self) -> object:
        """Return the request to the engine, from the entered values."""
        raise NotImplementedError

    def close_started(self) -> None:
        """Close the sheet after the engine has accepted the request."""
        self._about = None
        self._go.set_busy(None)
        if not self.isHidden():
            self.close_sheet()

    def refuse(self, problem: Problem | None) -> None:
        """Show why the run did not start; None clears the message."""
        self._go.set_busy(None)
        self._problem.set_words(f"{problem.message} {problem.hint}".strip() if problem else "")
        self._problem.setVisible(problem is not None)

    def turn_to(self, about: object) -> bool:
        """Set the subject `about` of the sheet, such as a checkpoint. Returns whether it differs
        from the last one, so that the caller must fill the fields."""
        if about == self._about:
            return False
        self._about = about
        self.refuse(None)
        return True

    def show_command(self, words: str) -> None:
        """Show the command line that does the same as the sheet."""
        self._command.set_words(words)

    def add_end(self) -> None:
        """Add problem, command and buttons after the fields."""
        add(
            self.body,
            self._problem,
            STRETCH,
            Text("In a terminal", "caption", 500, "faint"),
            self._command,
        )
        cancel = Button("Cancel", "quiet", height=32)
        cancel.clicked.connect(self.close_sheet)
        add(self.foot, STRETCH, cancel, self._go)

    def _accept(self) -> None:
        if not self._go.is_busy():
            self.refuse(None)
            self._go.set_busy("Starting")
            self.ordered.emit(self.request())
