"""A field and what is stored of it: sent when it is finished, not redrawn while it is typed."""

from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from studio.widgets.forms.form import FormRow
from studio.widgets.forms.form_fields import Field, NumberField, SpinField, TextField, ToggleField


class Stored:
    """A row in a window of its own, and the values that it wanted stored."""

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
        """The time passes after which what is typed is taken."""
        assert self.row.entry._pause.isActive()
        self.row.entry._pause.stop()
        self.row.entry._pause.timeout.emit()


@pytest.fixture
def kl(qtbot: QtBot) -> Stored:
    return Stored(qtbot, NumberField("KL weight", 0.0, 1.0), 0.0)


def test_a_number_is_sent_once_when_it_is_finished(kl: Stored) -> None:
    kl.clear()
    kl.type("2e-5")
    assert kl.sent == []
    kl.press(Qt.Key.Key_Return)
    assert kl.sent == [2e-5]
    kl.other.setFocus()
    assert kl.sent == [2e-5], "it is on its way already"


def test_leaving_the_field_finishes_it(kl: Stored) -> None:
    kl.clear()
    kl.type("0.5")
    kl.other.setFocus()
    assert kl.sent == [0.5]


@pytest.mark.parametrize("begun", ["", "0.", "2e", "2e-", "-", "7"])
def test_a_pause_never_sends_what_is_not_finished_or_wrong(kl: Stored, begun: str) -> None:
    kl.clear()
    kl.type(begun)
    kl.pause()
    assert kl.sent == []
    assert kl.row.problem() == "", "nobody is told off in the middle of a number"
    assert kl.text == begun


def test_a_pause_sends_what_reads_and_more_may_follow(kl: Stored) -> None:
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


def test_other_answers_never_redraw_what_is_typed(kl: Stored) -> None:
    kl.clear()
    kl.type("0.")
    for stored in (0.0, 0.3):
        kl.row.show_stored(stored)
        assert kl.text == "0."
    kl.press(Qt.Key.Key_Left)
    kl.row.show_stored(0.0)
    kl.type("1")
    assert kl.text == "01.", "the cursor is where it was"


def test_what_cannot_be_read_is_said_and_stays(kl: Stored) -> None:
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
    assert kl.sent == [], "that is stored"
    assert kl.row.problem() == ""


def test_what_was_refused_stays_until_another_value_is_stored(kl: Stored) -> None:
    kl.clear()
    kl.type("0.9")
    kl.other.setFocus()
    kl.row.answer("Too much with this loss.")
    kl.row.show_stored(0.0, "GRPO has 0.1")
    assert (kl.text, kl.row.problem()) == ("0.9", "Too much with this loss.")
    kl.row.show_stored(0.2, "GRPO has 0.1")
    assert (kl.text, kl.row.note(), kl.row.problem()) == ("0.2", "GRPO has 0.1", "")


def test_what_is_on_its_way_does_not_go_back_meanwhile(kl: Stored) -> None:
    kl.clear()
    kl.type("0.9")
    kl.other.setFocus()
    kl.row.show_stored(0.0)
    assert kl.text == "0.9"
    kl.row.answer("")
    kl.row.show_stored(0.9)
    assert kl.text == "0.9"


def test_emptied_it_is_what_it_is_without_being_set(kl: Stored) -> None:
    kl.clear()
    kl.other.setFocus()
    assert kl.sent == [None]
    kl.row.answer("")
    kl.row.show_stored(0.0)
    assert kl.text == "0", "stored is what was stored before, and it is shown again"


def test_another_project_takes_nothing_of_this_one(kl: Stored) -> None:
    kl.clear()
    kl.type("0.9")
    kl.row.entry.forget()
    kl.row.show_stored(0.0)
    assert kl.text == "0"
    kl.other.setFocus()
    assert kl.sent == []


def test_a_figure_is_never_shown_as_another_one(kl: Stored) -> None:
    for value, shown in ((2e-5, "2e-05"), (0.123456789, "0.123456789"), (0.25, "0.25")):
        kl.row.show_stored(value)
        assert kl.text == shown


def test_a_count_is_sent_whole(qtbot: QtBot) -> None:
    steps = Stored(qtbot, SpinField("Steps", 1, 10_000), 7)
    steps.clear()
    steps.type("1")
    steps.row.show_stored(8)
    steps.type("28")
    assert steps.sent == []
    steps.other.setFocus()
    assert steps.sent == [128]


def test_a_choice_is_sent_at_once(qtbot: QtBot) -> None:
    skips = Stored(qtbot, ToggleField("Skip"), False)
    skips.press(Qt.Key.Key_Space)
    skips.press(Qt.Key.Key_Space)
    assert skips.sent == [True, False]
    skips.row.answer("")
    skips.row.show_stored(False)
    assert not skips.row.field.value()
