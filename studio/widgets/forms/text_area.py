"""Multi-line plain text input."""

from typing import Any

from PySide6.QtCore import QSize, Signal
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from studio.theme.theme import theme
from studio.widgets.forms.form_fields import Field


class TextArea(QPlainTextEdit):
    """Text area: `TextArea("Description", "What comes in …")`; Tab leaves it. `edited()` is emitted
    for changes by the user only."""

    edited = Signal()

    def __init__(
        self,
        name: str,
        placeholder: str = "",
        *,
        mono: bool = False,
        least_px: int = 96,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.setAccessibleName(name)
        self.setProperty("area", True)
        self.setPlaceholderText(placeholder)
        self.setFont(theme().font("mono-small" if mono else "body"))
        self.setTabChangesFocus(True)
        self.setMinimumHeight(least_px)
        self._least_px = least_px
        self.textChanged.connect(self._changed)
        self._quiet = False

    def set_text(self, text: str) -> None:
        """Replace the text if it differs, without emitting."""
        if text != self.text():
            self._quiet = True
            self.setPlainText(text)
            self._quiet = False

    def text(self) -> str:
        return self.toPlainText()

    def set_problem(self, problem: bool) -> None:
        """Draw the edge in the error colour if `problem`."""
        self.setProperty("problem", problem)
        self.style().unpolish(self)
        self.style().polish(self)

    def sizeHint(self) -> QSize:
        return QSize(super().sizeHint().width(), self._least_px)

    def _changed(self) -> None:
        if not self._quiet:
            self.edited.emit()


class ParagraphField(Field):
    """Text area as a form field."""

    def __init__(self, name: str, placeholder: str = "", *, least_px: int = 96) -> None:
        self.area = TextArea(name, placeholder, least_px=least_px)
        super().__init__(name, self.area)
        self.area.edited.connect(lambda: self.edited.emit(self.value()))

    def value(self) -> str:
        return self.area.text()

    def set_value(self, value: Any) -> None:
        self.area.set_text(str(value))
