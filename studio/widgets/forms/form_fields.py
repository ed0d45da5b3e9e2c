"""Editors of a form: spin box, number, text, choice, segmented, toggle, path. Each has value,
set_value and edited; typed fields also signal when typing is finished."""

import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLineEdit, QWidget

from studio.widgets.controls.buttons import Button
from studio.widgets.controls.inputs import LineInput
from studio.widgets.controls.quiet_inputs import QuietCombo, QuietSpin
from studio.widgets.controls.segmented import Segmented
from studio.widgets.controls.toggle import Toggle

BARE = re.compile(r"[A-Za-z0-9_-]+")
"""Name that TOML takes without quotes."""


class Field(QWidget):
    """Base class of form editors. `edited(value)` is emitted after a change by the user, never by
    set_value; `finished()` when typing ends with Return or loss of focus."""

    edited = Signal(object)
    finished = Signal()
    typed: ClassVar[bool] = False
    """Whether changes come key by key."""

    def __init__(self, name: str, editor: QWidget, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.editor = editor
        editor.setAccessibleName(name)
        self._line_layout = line = QHBoxLayout(self)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(8)
        line.addWidget(editor)
        self.setFocusProxy(editor)

    def value(self) -> Any:
        """Return the entered value in the type of the setting; None if there is none."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Show a value without emitting a signal."""
        raise NotImplementedError

    def wrong(self) -> str:
        """Why the entered value is invalid; empty if it is valid."""
        return ""

    def unfinished(self) -> bool:
        """Whether the text is a number still being typed, such as "1e-"."""
        return False

    def set_problem(self, problem: bool) -> None:
        """Draw the edge in the error colour if `problem`."""
        self.editor.setProperty("problem", problem)
        self.editor.style().unpolish(self.editor)
        self.editor.style().polish(self.editor)


class SpinField(Field):
    """Integer: `SpinField("Steps", 1, 10_000, suffix=" steps")`."""

    typed = True

    def __init__(
        self, name: str, low: int = 0, high: int = 1_000_000, *, step: int = 1, suffix: str = ""
    ) -> None:
        self._spin = QuietSpin()
        super().__init__(name, self._spin)
        self._spin.setRange(low, high)
        self._spin.setSingleStep(step)
        self._spin.setSuffix(suffix)
        self._spin.setGroupSeparatorShown(True)
        self._spin.setFixedWidth(148)
        self._line_layout.setAlignment(self._spin, Qt.AlignmentFlag.AlignLeft)
        self._spin.valueChanged.connect(lambda value: self.edited.emit(value))
        self._spin.editingFinished.connect(self.finished)

    def value(self) -> int:
        return self._spin.value()

    def set_value(self, value: Any) -> None:
        self._spin.blockSignals(True)
        self._spin.setValue(int(value))
        self._spin.blockSignals(False)


class NumberField(Field):
    """Number as text, since 2e-5 has no spin step; empty or invalid text is None. `whole`: only
    integers are valid."""

    typed = True

    def __init__(
        self,
        name: str,
        low: float | None = None,
        high: float | None = None,
        placeholder: str = "",
        *,
        whole: bool = False,
    ) -> None:
        self._line = LineInput(name, placeholder, mono=True)
        super().__init__(name, self._line)
        self._low, self._high, self._whole = low, high, whole
        self._line.setFixedWidth(148)
        self._line_layout.setAlignment(self._line, Qt.AlignmentFlag.AlignLeft)
        self._line.textEdited.connect(lambda _: self.edited.emit(self.value()))
        self._line.editingFinished.connect(self.finished)

    def value(self) -> float | None:
        text = self._line.text().replace("\u2212", "-")
        try:
            value = int(text) if self._whole else float(text)
            return value if math.isfinite(value) else None
        except (ValueError, OverflowError):
            return None

    def text(self) -> str:
        return self._line.text().strip()

    def problem(self) -> str:
        """Error of the text, also if there is none; empty for a number within the limits."""
        value = self.value()
        if value is None:
            return "Not a whole number" if self._whole else "Not a number"
        if self._low is not None and value < self._low:
            return f"At least {self._low:g}"
        if self._high is not None and value > self._high:
            return f"At most {self._high:g}"
        return ""

    def wrong(self) -> str:
        """Error of the text; empty for no text, which stands for the default."""
        return self.problem() if self.text() else ""

    def unfinished(self) -> bool:
        return self.text()[-1:] in ("", *".eE+-\u2212")

    def set_value(self, value: Any) -> None:
        self._line.setText("" if value is None else _digits(value))


def _digits(value: float) -> str:
    """Shortest text of exactly this number; an integer in digits alone."""
    if isinstance(value, int):
        return str(value)
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


class TextField(Field):
    """Line of text; a secret one shows dots."""

    typed = True

    def __init__(
        self, name: str, placeholder: str = "", *, mono: bool = False, secret: bool = False
    ) -> None:
        self._line = LineInput(name, placeholder, mono=mono)
        if secret:
            self._line.setEchoMode(QLineEdit.EchoMode.Password)
        super().__init__(name, self._line)
        self._line.textEdited.connect(lambda words: self.edited.emit(words))
        self._line.editingFinished.connect(self.finished)

    def value(self) -> str:
        return self._line.text()

    def set_value(self, value: Any) -> None:
        self._line.setText("" if value is None else str(value))


class TableField(Field):
    """Names and values on one line, as in TOML: `reasoning_effort = "high", days = 3`."""

    typed = True

    def __init__(self, name: str, placeholder: str = "") -> None:
        self._line = LineInput(name, placeholder, mono=True)
        super().__init__(name, self._line)
        self._line.textEdited.connect(lambda _: self.edited.emit(self.value()))
        self._line.editingFinished.connect(self.finished)

    def value(self) -> Any:
        """Return the table; None if there is none, or the text is none."""
        return None if self.wrong() else self._parsed() or None

    def wrong(self) -> str:
        try:
            found = self._parsed()
        except tomllib.TOMLDecodeError:
            return 'Write name = value, with commas between; texts in quotes: effort = "high"'
        if any(not isinstance(value, (str, int, float)) for value in found.values()):
            return "A value is a text in quotes, a number, true or false"
        return ""

    def set_value(self, value: Any) -> None:
        self._line.setText(table_words(value or {}))

    def _parsed(self) -> dict[str, Any]:
        table: dict[str, Any] = tomllib.loads(f"table = {{{self._line.text()}}}")["table"]
        return table


def table_words(table: Mapping[str, Any]) -> str:
    """Return a table on one line, as `TableField` shows it."""
    names = (name if BARE.fullmatch(name) else json.dumps(name) for name in table)
    values = (json.dumps(value, ensure_ascii=False) for value in table.values())
    return ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))


class ChoiceField(Field):
    """Combo box: `ChoiceField("Loss", [("clip", "Clipped"), …])` of values and labels."""

    def __init__(
        self, name: str, choices: Sequence[tuple[Any, str]] = (), width_px: int | None = None
    ) -> None:
        self._box = QuietCombo()
        super().__init__(name, self._box)
        self._box.setMinimumWidth(148)
        if width_px is not None:
            self._box.setFixedWidth(width_px)
            self._line_layout.setAlignment(self._box, Qt.AlignmentFlag.AlignLeft)
        self._box.setFixedHeight(32)
        self.set_choices(choices)
        self._box.activated.connect(lambda _: self.edited.emit(self.value()))

    def set_choices(self, choices: Sequence[tuple[Any, str]]) -> None:
        """Replace the list; keeps the value if it is still in it."""
        before = self.value()
        self._box.clear()
        for value, words in choices:
            self._box.addItem(words, value)
        self.set_value(before)

    def value(self) -> Any:
        return self._box.currentData()

    def set_value(self, value: Any) -> None:
        index = self._box.findData(value)
        if index >= 0:
            self._box.setCurrentIndex(index)


class SuggestField(Field):
    """Line of text with suggestions: typed, or selected from the list."""

    typed = True

    def __init__(self, name: str, placeholder: str = "") -> None:
        self._box = QuietCombo()
        self._box.setEditable(True)
        self._box.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        super().__init__(name, self._box)
        self._box.setFixedHeight(32)
        self.line.setPlaceholderText(placeholder)
        self.line.setAccessibleName(name)
        self._box.editTextChanged.connect(lambda words: self.edited.emit(words))
        self.line.editingFinished.connect(self.finished)

    @property
    def line(self) -> QLineEdit:
        """Line edit of the combo box."""
        line = self._box.lineEdit()
        assert line is not None, "an editable combo box has a line edit"
        return line

    def set_choices(self, choices: Sequence[str]) -> None:
        """Replace the suggestions; typed text is kept."""
        typed = self.value()
        self._box.blockSignals(True)
        self._box.clear()
        self._box.addItems(list(choices))
        self._box.setEditText(typed)
        self._box.blockSignals(False)

    def choices(self) -> list[str]:
        return [self._box.itemText(place) for place in range(self._box.count())]

    def value(self) -> str:
        return self._box.currentText()

    def set_value(self, value: Any) -> None:
        self._box.blockSignals(True)
        self._box.setEditText(str(value))
        self._box.blockSignals(False)


class SegmentedField(Field):
    """Segmented control: `SegmentedField("Sampler", [("torch", "This process"), …])`."""

    def __init__(self, name: str, choices: Sequence[tuple[Any, str]]) -> None:
        self._switch = Segmented([words for _, words in choices], name, height=32)
        super().__init__(name, self._switch)
        self._values = [value for value, _ in choices]
        self._line_layout.setAlignment(self._switch, Qt.AlignmentFlag.AlignLeft)
        self._switch.chosen.connect(lambda index: self.edited.emit(self._values[index]))

    def value(self) -> Any:
        return self._values[self._switch.index()]

    def set_value(self, value: Any) -> None:
        if value in self._values:
            self._switch.set_index(self._values.index(value))

    def set_problem(self, problem: bool) -> None:
        self._switch.set_problem(problem)


class ToggleField(Field):
    def __init__(self, name: str, words: str = "") -> None:
        self._toggle = Toggle(words, name)
        super().__init__(name, self._toggle)
        self._line_layout.setAlignment(self._toggle, Qt.AlignmentFlag.AlignLeft)
        self.setFixedHeight(32)
        self._toggle.clicked.connect(lambda: self.edited.emit(self.value()))

    def value(self) -> bool:
        return self._toggle.isChecked()

    def set_value(self, value: Any) -> None:
        self._toggle.setChecked(bool(value))


class PathField(Field):
    """Path with a button; the page opens the platform's dialog on `browse_requested`."""

    typed = True
    browse_requested = Signal()

    def __init__(self, name: str, placeholder: str = "", button: str = "Browse") -> None:
        self._line = LineInput(name, placeholder)
        super().__init__(name, self._line)
        browse = Button(button, "outlined", height=32)
        browse.setAccessibleName(f"{button}: {name}")
        self._line_layout.addWidget(browse)
        self._line.textEdited.connect(lambda words: self.edited.emit(words))
        self._line.editingFinished.connect(self.finished)
        browse.clicked.connect(self.browse_requested)

    def value(self) -> str:
        return self._line.text()

    def set_value(self, value: Any) -> None:
        self._line.setText("" if value is None else str(value))
