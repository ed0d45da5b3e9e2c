"""Box layouts: order, gaps, stretch, margins and spacing."""

from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from studio.widgets.layouts import STRETCH, hbox, vbox


def test_items_are_in_order_with_their_stretch(qtbot: QtBot) -> None:
    host, first, second = QWidget(), QLabel("a"), QLabel("b")
    qtbot.addWidget(host)
    inner = vbox(second)
    box = hbox(first, 7, (inner, 2), STRETCH, parent=host, margins=(1, 2, 3, 4), spacing=5)
    assert (type(box), type(inner), host.layout()) == (QHBoxLayout, QVBoxLayout, box)
    items = [box.itemAt(place) for place in range(box.count())]
    assert [items[0].widget(), items[2].layout()] == [first, inner]
    assert items[1].spacerItem().sizeHint().width() == 7
    assert [box.stretch(place) for place in range(4)] == [0, 0, 2, 1]
    margins = box.contentsMargins()
    assert [margins.left(), margins.top(), margins.right(), margins.bottom()] == [1, 2, 3, 4]
    assert box.spacing() == 5


def test_margins_are_zero_by_default(qtbot: QtBot) -> None:
    host = QWidget()
    qtbot.addWidget(host)
    box = vbox(QLabel("a"), parent=host)
    assert box.contentsMargins().isNull()
    assert vbox(margins=6).contentsMargins().bottom() == 6
