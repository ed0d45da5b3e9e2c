"""Fields of SSH prompts: a fingerprint to compare, or a secret that can be stored."""

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication, QWidget

from studio.widgets.cards.card import Card
from studio.widgets.controls.buttons import Button
from studio.widgets.controls.inputs import LineInput
from studio.widgets.controls.toggle import Toggle
from studio.widgets.forms.form_fields import Field, TextField
from studio.widgets.layouts import hbox, vbox
from studio.widgets.text.text import Text

COPIED_MS = 1000


class FingerprintField(Field):
    """Kind and fingerprint of a host key in monospace, to be read or copied; it has no value."""

    def __init__(self, detail: str) -> None:
        self._copy = Button("Copy", "outlined", icon="copy")
        self._copy.setAccessibleDescription("Copy the fingerprint")
        kind, _, print_ = detail.partition(" ")
        card = Card(padding=12, tone="raised")
        card.body.setSpacing(4)
        line = hbox((Text(kind if print_ else "Key", "label", 500, "muted"), 1), self._copy)
        card.body.addLayout(line)
        self.fingerprint = Text(print_ or kind, "mono", selectable=True)
        self.fingerprint.setAccessibleName(f"Fingerprint {print_ or kind}")
        card.body.addWidget(self.fingerprint)
        super().__init__("Fingerprint", card)
        self._detail = print_ or kind
        self._copy.clicked.connect(self._copied)
        self.setFocusProxy(self._copy)

    def value(self) -> None:
        return None

    def _copied(self) -> None:
        QApplication.clipboard().setText(self._detail)
        self._copy.set_words("Copied")
        QTimer.singleShot(COPIED_MS, self, lambda: self._copy.set_words("Copy"))


class SecretField(Field):
    """Secret input. Its value is the typed text and whether to store it in the keyring."""

    def __init__(self, name: str, why_not: str = "") -> None:
        """Create the field; `why_not` is the reason why the keyring is unavailable, if it is."""
        self._secret = TextField(name, secret=True)
        self._keep = Toggle("Store in the system keyring")
        self._keep.setEnabled(not why_not)
        box = QWidget()
        column = vbox(self._secret, self._keep, parent=box, spacing=8)
        if why_not:
            column.addWidget(Text(why_not, "caption", tone="faint", wrap=True))
        super().__init__(name, box)
        self.setFocusProxy(self._secret)

    @property
    def line(self) -> LineInput:
        """Line edit of the secret; Enter submits it."""
        line = self._secret.editor
        assert isinstance(line, LineInput)
        return line

    def value(self) -> tuple[str, bool]:
        """Return the typed secret, and whether to store it in the keyring."""
        return self._secret.value(), self._keep.isChecked()
