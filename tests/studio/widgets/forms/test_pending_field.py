"""Form field and its stored value: sent when finished, not overwritten while being typed."""

from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from studio.widgets.forms.form import FormRow
from studio.widgets.forms.form_fields import Field, NumberField, SpinField, TextField, ToggleField


class StoredField:
    """Form row in a window of its own, and the values it sent."""

    def __init__(self, qtbot: QtBot, field: Field, stored: Any) -> None:
        self.window = QWidget()
        qtbot.addWidget(self.window)
        self.row, self.other = FormRow("kl", "KL weight", field), TextField("Other")
        column = QVBoxLayout(self.window)
        column.addWidget(self.row)
        column.addWidget(self.other)
        self.window.show()
        self.window.activateWindow()
        qtbot.waitUntil(self.window.isActiveWindow, timeout=5000)
        self.sent: list[Any] = []
        self.row.entered.connect(lambda _, value: self.sent.append(value))
        self.row.show_stored(stored)
        field.editor.setFocus()

    @property
    def text(self) -> str:
        return str(self.row.field.editor.text())  # type: ignore[attr-defined]

    def type(self, keys: str) -> None:
        QTest.keyClicks(self.row.field.editor, keys)

    def press(self, key: Qt.Key) -> None:
        QTest.keyClick(self.row.field.editor, key)

    def clear(self) -> None:
        self.row.field.editor.selectAll()  # type: ignore[attr-defined]
        self.press(Qt.Key.Key_Delete)

    def pause(self) -> None:
        """End the typing pause after which an entry is sent."""
        assert self.row.entry._pause.isActive()
        self.row.entry._pause.stop()
        self.row.entry._pause.timeout.emit()


@pytest.fixture
def kl(qtbot: QtBot) -> StoredField:
    return StoredField(qtbot, NumberField("KL weight", 0.0, 1.0), 0.0)


def test_number_is_sent_once_when_finished(kl: StoredField) -> None:
    kl.clear()
    kl.type("2e-5")
    assert kl.sent == []
    kl.press(Qt.Key.Key_Return)
    assert kl.sent == [2e-5]
    kl.other.setFocus()
    assert kl.sent == [2e-5], "already sent"


def test_focus_loss_sends_value(kl: StoredField) -> None:
    kl.clear()
    kl.type("0.5")
    kl.other.setFocus()
    assert kl.sent == [0.5]


@pytest.mark.parametrize("begun", ["", "0.", "2e", "2e-", "-", "7"])
def test_pause_does_not_send_unfinished_or_invalid_number(kl: StoredField, begun: str) -> None:
    kl.clear()
    kl.type(begun)
    kl.pause()
    assert kl.sent == []
    assert kl.row.problem() == "", "no error while a number is being typed"
    assert kl.text == begun


def test_pause_sends_valid_number_and_typing_continues(kl: StoredField) -> None:
    kl.clear()
    kl.type("0.10")
    kl.pause()
    assert kl.sent == [0.1]
    kl.row.answer("")
    kl.row.show_stored(0.1)
    assert kl.text == "0.10"
    kl.type("5")
    kl.press(Qt.Key.Key_Return)
    assert kl.sent == [0.1, 0.105]
    kl.row.answer("")
    kl.row.show_stored(0.105)
    assert kl.row.field.value() == 0.105


def test_responses_do_not_overwrite_typed_text(kl: StoredField) -> None:
    kl.clear()
    kl.type("0.")
    for stored in (0.0, 0.3):
        kl.row.show_stored(stored)
        assert kl.text == "0."
    kl.press(Qt.Key.Key_Left)
    kl.row.show_stored(0.0)
    kl.type("1")
    assert kl.text == "01.", "the cursor did not move"


def test_invalid_number_is_reported_and_kept(kl: StoredField) -> None:
    kl.clear()
    kl.type("2e")
    kl.other.setFocus()
    assert kl.sent == []
    assert kl.row.problem() == "Not a number"
    kl.row.show_stored(0.0)
    assert (kl.text, kl.row.problem()) == ("2e", "Not a number")
    kl.row.field.editor.setFocus()
    kl.clear()
    kl.type("0")
    kl.press(Qt.Key.Key_Return)
    assert kl.sent == [], "the stored value is not sent"
    assert kl.row.problem() == ""


def test_rejected_value_is_kept_until_another_is_stored(kl: StoredField) -> None:
    kl.clear()
    kl.type("0.9")
    kl.other.setFocus()
    kl.row.answer("Too much with this loss.")
    kl.row.show_stored(0.0, "GRPO has 0.1")
    assert (kl.text, kl.row.problem()) == ("0.9", "Too much with this loss.")
    kl.row.show_stored(0.2, "GRPO has 0.1")
    assert (kl.text, kl.row.note(), kl.row.problem()) == ("0.2", "GRPO has 0.1", "")


def test_value_being_sent_is_not_reverted(kl: StoredField) -> None:
    kl.clear()
    kl.type("0.9")
    kl.other.setFocus()
    kl.row.show_stored(0.0)
    assert kl.text == "0.9"
    kl.row.answer("")
    kl.row.show_stored(0.9)
    assert kl.text == "0.9"


def test_emptied_field_sends_none_and_shows_stored_value(kl: StoredField) -> None:
    kl.clear()
    kl.other.setFocus()
    assert kl.sent == [None]
    kl.row.answer("")
    kl.row.show_stored(0.0)
    assert kl.text == "0", "the unchanged stored value is shown again"


def test_forget_discards_pending_value(kl: StoredField) -> None:
    kl.clear()
    kl.type("0.9")
    kl.row.entry.forget()
    kl.row.show_stored(0.0)
    assert kl.text == "0"
    kl.other.setFocus()
    assert kl.sent == []


def test_numbers_are_shown_without_rounding(kl: StoredField) -> None:
    for value, shown in ((2e-5, "2e-05"), (0.123456789, "0.123456789"), (0.25, "0.25")):
        kl.row.show_stored(value)
        assert kl.text == shown


def test_count_is_sent_as_whole_number(qtbot: QtBot) -> None:
    steps = StoredField(qtbot, SpinField("Steps", 1, 10_000), 7)
    steps.clear()
    steps.type("1")
    steps.row.show_stored(8)
    steps.type("28")
    assert steps.sent == []
    steps.other.setFocus()
    assert steps.sent == [128]


def test_toggle_is_sent_immediately(qtbot: QtBot) -> None:
    skips = StoredField(qtbot, ToggleField("Skip"), False)
    skips.press(Qt.Key.Key_Space)
    skips.press(Qt.Key.Key_Space)
    assert skips.sent == [True, False]
    skips.row.answer("")
    skips.row.show_stored(False)
    assert not skips.row.field.value()
