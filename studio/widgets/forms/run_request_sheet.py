"""A sheet that asks the engine for a run, and stays until it is there."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.problems import Problem
from studio.widgets.cards.sheet import Sheet
from studio.widgets.controls.buttons import Button
from studio.widgets.text.text import Text


class OrderSheet(Sheet):
    """`ordered(request)`, once; who hears it says `begun`, or refuses. What was entered and not
    begun stays for the next time at the same thing. Subclasses answer `request`, and say with
    `show_command` what would be typed."""

    ordered = Signal(object)

    def __init__(self, title: str, host: QWidget, go: Button) -> None:
        super().__init__(title, host)
        self._about: object = None
        """What the fields are about, as long as nothing was begun with them."""
        self._command = Text("", "mono-small", 400, "muted", wrap=True, selectable=True)
        self._problem = Text("", "label", 400, "bad", wrap=True, selectable=True)
        self._go = go
        go.clicked.connect(self._accept)

    def request(self) -> object:
        """What is asked of the engine as it stands."""
        raise NotImplementedError

    def begun(self) -> None:
        """The engine has taken it."""
        self._about = None
        self._go.set_busy(None)
        if not self.isHidden():
            self.close_sheet()

    def refuse(self, problem: Problem | None) -> None:
        """Why it did not begin; None where nobody says so."""
        self._go.set_busy(None)
        self._problem.set_words(f"{problem.message} {problem.hint}".strip() if problem else "")
        self._problem.setVisible(problem is not None)

    def turn_to(self, about: object) -> bool:
        """Whether the fields are about something else from now on, and have to be filled."""
        if about == self._about:
            return False
        self._about = about
        self.refuse(None)
        return True

    def show_command(self, words: str) -> None:
        """The same in a terminal."""
        self._command.set_words(words)

    def add_end(self) -> None:
        """Behind the fields: what is wrong, the command, and the buttons."""
        self.body.addWidget(self._problem)
        self.body.addStretch(1)
        self.body.addWidget(Text("In a terminal", "caption", 500, "faint"))
        self.body.addWidget(self._command)
        cancel = Button("Cancel", "quiet", height=32)
        cancel.clicked.connect(self.close_sheet)
        self.foot.addStretch(1)
        self.foot.addWidget(cancel)
        self.foot.addWidget(self._go)

    def _accept(self) -> None:
        if not self._go.is_busy():
            self.refuse(None)
            self._go.set_busy("Asking the engine")
            self.ordered.emit(self.request())
