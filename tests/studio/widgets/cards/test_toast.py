"""Toast: wraps, takes its room from the page above, and covers nothing."""

from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from studio.widgets.cards.toast import Toast
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import STRETCH, vbox


def test_long_message_wraps_above_nothing(qtbot: QtBot) -> None:
    host, button, toast = QWidget(), Button("Save"), Toast()
    qtbot.addWidget(host)
    vbox(STRETCH, button, toast, parent=host)
    host.resize(420, 300)
    host.show()
    before = button.y()
    toast.say("Words that need several lines. " * 6 + "/a/" + "path" * 40, undo="Undo")
    host.layout().activate()
    words = toast._words
    assert words.height() >= words.heightForWidth(words.width()) > 3 * 18
    assert toast.rect().contains(toast.box())
    assert not toast.geometry().intersects(button.geometry())
    assert host.rect().contains(toast.geometry())
    toast.hide()
    host.layout().activate()
    assert button.y() == before
    toast.say("Saved.")
    host.layout().activate()
    assert words.height() == 18, "a short message takes one line again"
