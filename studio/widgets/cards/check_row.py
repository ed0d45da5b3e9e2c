"""Check that the user starts: name, result, and buttons to test and to show details."""

from PySide6.QtCore import QPointF, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QWidget

from studio.theme.plain_tooltips import set_tip
from studio.widgets.cards.check_line import ICONS
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import STRETCH, hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.text.text import Text


class CheckRow(QWidget):
    """Row of a check: `set_found("good", "One rollout in 12 s …")`. Signals: `wanted` (test),
    `stop_wanted` (cancel), `look_wanted` (show details)."""

    wanted = Signal()
    stop_wanted = Signal()
    look_wanted = Signal()

    def __init__(self, name: str, tip: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._name, self._state, self._tested = name, "open", False
        self._words = Text("", "label", 400, "muted", wrap=True)
        self._hint = Text("", "caption", tone="muted", wrap=True, selectable=True)
        self.look = Button("Show", "quiet", height=24)
        self.test = Button("", "outlined", height=24)
        set_tip(self.test, tip)
        head = hbox(Text(name, "label", 500), STRETCH, self.look, self.test, spacing=4)
        vbox(head, self._words, self._hint, parent=self, margins=(22, 2, 0, 4), spacing=1)
        self.test.clicked.connect(self._pressed)
        self.look.clicked.connect(self.look_wanted)

    def set_found(self, state: str, words: str, hint: str = "", can_look: bool = False) -> None:
        """Set state (good, warn, bad, open or running), result and hint; `can_look` shows the
        button for details."""
        self._state = state
        self._tested |= state not in ("open", "running")
        self._words.set_words(words)
        self._hint.set_words(hint)
        self._hint.set_tone(state if state in ("warn", "bad") else "muted")
        self._hint.setVisible(bool(hint))
        self.look.setVisible(can_look)
        again = " again" if self._tested else f" {self._name.lower()}"
        self.test.set_words("Stop" if state == "running" else f"Test{again}")
        self.setAccessibleName(f"{self._name}: {words} {hint}, {state}".replace(" ,", ","))
        self.update()

    @property
    def running(self) -> bool:
        return self._state == "running"

    def forget(self) -> None:
        """Mark the check as not run yet, because another project was opened."""
        self._tested = False

    def words(self) -> str:
        """Return the result on display."""
        return self._words.words()

    def paintEvent(self, event: QPaintEvent) -> None:
        icon, tone = ICONS[self._state]
        with paint.painting(self) as painter:
            paint.icon(painter, QPointF(0, self.test.y() + 5), icon, tone, 14)

    def _pressed(self) -> None:
        (self.stop_wanted if self.running else self.wanted).emit()
