"""A field whose value is stored elsewhere: when what is entered is sent, when it may be redrawn.

In: what a person types, what is stored, what was answered. Out: `entered(value)` once a change is
finished (Return, the focus goes elsewhere, a pause; at once where it is chosen and not typed), and
`said(words)` where it cannot be taken. What is being typed, what is on its way and what was refused
is never redrawn, unless another value is stored by then.
"""

from typing import Any, Final

from PySide6.QtCore import QObject, QTimer, Signal

from studio.widgets.forms.form_fields import Field

PAUSE_MS = 600
"""After the last key, when nobody has left the field."""
UNKNOWN: Final = object()


class Entry(QObject):
    """`show(stored)` whenever it is told, `answered(refused)` to each `entered`. `at_once` sends
    every change that can be taken, also while it is typed."""

    entered = Signal(object)
    said = Signal(str)

    def __init__(self, field: Field, at_once: bool = False) -> None:
        super().__init__(field)
        self._field, self._at_once = field, at_once
        self._stored: Any = UNKNOWN
        self._sent: Any = UNKNOWN
        self._now: Any = UNKNOWN
        self._unsent = self._touched = self._renew = False
        self.refused = False
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(PAUSE_MS)
        self._pause.timeout.connect(self._paused)
        field.edited.connect(self._edit)
        field.finished.connect(self.finish)

    @property
    def typing(self) -> bool:
        """Whether a person is at it."""
        return self._touched and self._field.editor.hasFocus()

    def show(self, stored: Any) -> None:
        """What is stored now; it is drawn where it is another value than before."""
        other, self._renew = self._renew or stored != self._stored, False
        self._stored = stored
        if other and not self.typing and self._sent is UNKNOWN:
            self._draw()

    def answered(self, refused: bool) -> None:
        """What was sent is stored, or stays as it is to be mended."""
        self._sent, self.refused, self._renew = UNKNOWN, refused, not refused

    def renew(self) -> None:
        """What is stored next is drawn although it is as before, over a refusal too."""
        self._renew = True

    def forget(self) -> None:
        """The value of something else comes next: nothing of this one stays."""
        self._pause.stop()
        self._stored = self._sent = UNKNOWN
        self._unsent = self._touched = self.refused = False

    def finish(self) -> None:
        """Nothing more is typed for now."""
        self._pause.stop()
        if not self._touched:
            return
        self._touched = False
        if self._unsent:
            self._unsent = False
            if words := self._field.wrong():
                self._refuse(words)
            else:
                self._send()
        elif self._sent is UNKNOWN and not self.refused and self._stored is not UNKNOWN:
            self._draw()

    def _edit(self, value: Any) -> None:
        self._now, self._unsent, self._touched = value, True, True
        if not self._field.typed:
            self.finish()
        elif not self._at_once:
            self._pause.start()
        elif words := self._field.wrong():
            self._refuse(words)
        else:
            self._send()

    def _paused(self) -> None:
        if not self._field.wrong() and not self._field.unfinished():
            self._send()

    def _send(self) -> None:
        self._unsent = False
        if self._now != (self._stored if self._sent is UNKNOWN else self._sent):
            self._sent = self._now
            self.entered.emit(self._now)
        elif self._sent is UNKNOWN:
            self._settle()
            if not self.typing:
                self._field.set_value(self._stored)

    def _refuse(self, words: str) -> None:
        self.refused = True
        self.said.emit(words)

    def _settle(self) -> None:
        """What stands there is what is stored: nothing is wrong with it."""
        if self.refused:
            self.refused = False
            self.said.emit("")

    def _draw(self) -> None:
        self._pause.stop()
        self._unsent = self._touched = False
        self._settle()
        self._field.set_value(self._stored)
