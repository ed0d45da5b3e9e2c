"""Dialogs: Enter presses the default button, wherever the focus is; data is never deleted by it."""

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLineEdit, QWidget
from pytestqt.qtbot import QtBot

from studio.pages.conflict_dialog import DifferenceField
from studio.services.notifications import Choice, Question, default_of
from studio.theme.theme import Theme
from studio.widgets.controls.buttons import Button
from studio.widgets.forms.form_fields import Field, NumberField, SpinField, SuggestField, TextField
from studio.widgets.forms.question_fields import FingerprintField, SecretField

CANCEL, EXTEND = Choice("", "Cancel"), Choice("extend", "Extend", "primary")
DELETE = Choice("delete", "Delete", "danger")
STOP = Choice("stop", "Stop the engine", "danger", default=True)
FIELDS = (
    lambda: None,
    lambda: TextField("Folder"),
    lambda: SpinField("Total steps", 1, 10),
    lambda: NumberField("Rate"),
    lambda: SuggestField("Model"),
    lambda: SecretField("Password"),
    lambda: FingerprintField("ED25519 SHA256:abc"),
    lambda: DifferenceField("mine\n", "theirs\n"),
)


@pytest.fixture
def host(qapp: QApplication, qtbot: QtBot) -> QWidget:
    Theme.install(qapp, "dark")
    window = QWidget()
    window.resize(960, 640)
    qtbot.addWidget(window)
    window.show()
    return window


def asked(host: QWidget, choices: list[Choice], field: Field | None = None) -> Question:
    question = Question(host, "Title", "Words.", choices, field)
    question.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose, False)
    question.open()
    return question


@pytest.mark.parametrize(
    ("choices", "answer"),
    [
        ([CANCEL, EXTEND], "extend"),
        ([CANCEL, Choice("there", "There"), EXTEND], "extend"),
        ([CANCEL, DELETE], ""),
        ([CANCEL, Choice("file", "Reload the file"), DELETE], ""),
        ([CANCEL, STOP], "stop"),
    ],
)
@pytest.mark.parametrize("key", [Qt.Key.Key_Return, Qt.Key.Key_Enter])
def test_enter_presses_the_default(
    host: QWidget, choices: list[Choice], answer: str, key: Qt.Key
) -> None:
    question = asked(host, choices)
    focused = question.focusWidget()
    assert isinstance(focused, Button)
    assert focused.words() == default_of(choices).words
    QTest.keyClick(focused, key)
    assert (question.answer, question.isVisible()) == (answer, False)


@pytest.mark.parametrize("make", FIELDS)
@pytest.mark.parametrize(("last", "answer"), [(EXTEND, "extend"), (DELETE, "")])
def test_enter_in_a_field_presses_it_too(
    host: QWidget, make: type[Field], last: Choice, answer: str
) -> None:
    question = asked(host, [CANCEL, last], make())
    answers: list[int] = []
    question.finished.connect(answers.append)
    focused = question.focusWidget()
    assert focused is not None
    if question.field is not None and (lines := question.field.findChildren(QLineEdit)):
        assert focused in (*lines, lines[0].parentWidget())
    QTest.keyClick(focused, Qt.Key.Key_Return)
    assert question.answer == answer
    assert len(answers) == 1, "answered once"


def test_enter_on_another_button_presses_that_one_and_escape_none(host: QWidget) -> None:
    question = asked(host, [CANCEL, EXTEND])
    cancel = next(one for one in question.findChildren(Button) if one.words() == "Cancel")
    cancel.setFocus()
    QTest.keyClick(cancel, Qt.Key.Key_Return)
    assert question.answer == ""
    question = asked(host, [CANCEL, EXTEND])
    QTest.keyClick(question, Qt.Key.Key_Escape)
    assert question.answer is None
