"""Bars with a label and a figure: a long figure shortens the bar instead of covering it."""

import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from studio.widgets.painting import paint
from studio.widgets.tables.meter import FIGURE_GAP_PX, MeterRow
from studio.widgets.tables.stack_bar import StackRow, Stretch

FIGURES = ("25 %", "10.3 / 25.3 GB", "1024.3 / 2048.0 GB")


@pytest.mark.parametrize("figure", FIGURES)
def test_figure_never_covers_its_bar(figure: str, qtbot: QtBot) -> None:
    row, stack = MeterRow("Memory"), StackRow("Memory")
    row.set_value(0.4, figure)
    stack.set_stretches([Stretch("this run", 0.4, "plot-1")], figure)
    rows: tuple[QWidget, ...] = (row, stack)
    for one in rows:
        qtbot.addWidget(one)
        one.resize(260, one.height())
    begins = 260 - paint.text_width(figure, "mono-small")
    for bar in (row.bar(), stack.bar()):
        assert 60 < bar.right() <= begins - FIGURE_GAP_PX + 0.5
