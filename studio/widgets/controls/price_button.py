"""Price button: shows the cost of an action in money, time or disk space before it is clicked."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from studio.widgets.controls.buttons import Button, IconButton
from studio.widgets.layouts import STRETCH, hbox
from studio.widgets.text.text import Text


class PriceButton(QWidget):
    """Button with the states priced, measuring, free, unavailable, over budget (with a link to the
    budget) and running (with progress)."""

    pressed = Signal()
    cancel_requested = Signal()
    budget_requested = Signal()

    def __init__(self, icon: str = "", *, height: int = 32, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._button = Button("", "primary", icon=icon, height=height)
        self._cancel = IconButton("x", "Cancel", size=28)
        self._note = Text("", "label", 400, "bad")
        self._raise = Button("Open budget", "quiet", height=24)
        hbox(self._button, self._cancel, self._note, self._raise, STRETCH, parent=self, spacing=8)
        self._button.clicked.connect(self.pressed)
        self._cancel.clicked.connect(self.cancel_requested)
        self._raise.clicked.connect(self.budget_requested)
        self.setFocusProxy(self._button)
        self.set_unavailable("")

    def set_priced(self, words: str, price: str) -> None:
        """Set label and price: `set_priced("Re-judge 24 groups", "48 calls · ≈ $0.31")`."""
        self._show(words, price)

    def set_measuring(self, words: str, doing: str = "counting calls…") -> None:
        """Disable the button while the price is computed; `doing` stands in place of the price."""
        self._show(words, doing)
        self._button.set_busy(f"{words} \u00b7 {doing}")

    def set_free(self, words: str, why: str = "free") -> None:
        """Set label and why it is free: `set_free("Re-judge 24 groups", "48 cached · free")`."""
        self._show(words, why)

    def set_over_budget(self, words: str, price: str, left: str) -> None:
        """Disable the button; `left` is a text after it that says what is left of the budget, such
        as `$0.31, $0.12 left`, with a link to the budget."""
        self._show(words, price, enabled=False)
        self._note.set_words(left)
        self._note.show()
        self._raise.show()

    def set_unavailable(self, words: str) -> None:
        """Disable the inner button and show the label `words` without a price. This widget stays
        enabled, since disabling it would keep the button disabled in every later state."""
        self._show(words, "", enabled=False)

    def set_running(self, words: str, share: float | None) -> None:
        """Show progress (0 to 1, None: unknown) in the button, with a cancel button next to it."""
        self._show(words, "")
        self._button.set_busy(words, share)
        self._cancel.show()

    def _show(self, words: str, price: str, enabled: bool = True) -> None:
        self._button.set_busy(None)
        self._button.set_words(words, price)
        self._button.setEnabled(enabled)
        self.setAccessibleName(self._button.accessibleName())
        for part in (self._cancel, self._note, self._raise):
            part.hide()
