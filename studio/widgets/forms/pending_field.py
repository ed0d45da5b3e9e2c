"""Field whose value is stored elsewhere: decides when an entry is sent and when it may be redrawn.

Input: what the user types, the stored value, the result of an edit. Output: `entered(value)` once a
change is finished (Return, loss of focus, a pause; immediately if selected rather than typed), and
`problem_changed(words)` for an invalid value. Text being typed, sent or refused is never redrawn
unless a different value is stored."""

from typing import Any, Final

from PySide6.QtCore import QObject, QTimer, Signal

from studio.widgets.forms.form_fields import Field

PAUSE_MS = 600
"""Milliseconds after the last key after which typing counts as finished."""
UNKNOWN: Final = object()


class Entry(QObject):
    """Edit state of a field: call `show(stored)` with every stored value, and `answered(refused)`
    after each `entered`. `at_once` emits every valid change, also while typing."""

    entered = Signal(object)
    problem_changed = Signal(str)

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
        return self._touched and self._field.editor.hasFocus()

    def show(self, stored: Any) -> None:
        """Show a stored value if it differs from the last one, unless an edit is being typed or
        awaits its result."""
        other, self._renew = self._renew or stored != self._stored, False
        self._stored = stored
        if other and not self.typing and self._sent is UNKNOWN:
            self._draw()

    def answered(self, refused: bool) -> None:
        """Record whether the edit sent by `entered` was refused; refused text is kept for
        correction."""
        self._sent, self.refused, self._renew = UNKNOWN, refused, not refused

    def renew(self) -> None:
        """Make the next `show` redraw an unchanged value too, replacing a refused one."""
        self._renew = True

    def forget(self) -> None:
        """Discard all state, before the field shows the value of another project."""
        self._pause.stop()
        self._stored = self._sent = UNKNOWN
        self._unsent = self._touched = self.refused = False

    def finish(self) -> None:
        """Send a pending edit now, as at the end of typing; an invalid one is refused."""
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
        self.problem_changed.emit(words)

    def _settle(self) -> None:
        """Mark the shown value as stored and valid."""
        if self.refused:
            self.refused = False
            self.problem_changed.emit("")

    def _draw(self) -> None:
        self._pause.stop()
        self._unsent = self._touched = False
        self._settle()
        self._field.set_value(self._stored)
