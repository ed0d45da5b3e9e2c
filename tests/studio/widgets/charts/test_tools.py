"""Tools of a chart: axis, files, legend, shared x range, zoom, drag."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from studio.widgets.charts.chart_card import ChartCard
from studio.widgets.charts.grid.chart_grid import ChartGrid, Section
from studio.widgets.charts.grid.smoothing_slider import SmoothingSlider
from studio.widgets.charts.grid.zoom_button import ZoomButton
from studio.widgets.charts.legend import LINE_PX
from studio.widgets.charts.link import ChartLink
from studio.widgets.charts.series import HeldLineSeries


@pytest.fixture
def link() -> ChartLink:
    return ChartLink()


def make_card(link: ChartLink, title: str, last: int) -> ChartCard:
    card = ChartCard(title, link)
    steps = np.arange(1, last + 1)
    card.add_line("training", "plot-1").set_data(steps, steps / last)
    card.add_validation().set_data([1, last], [0.2, 0.8], [0.1, np.nan], [0.3, 0.9])
    return card


@pytest.fixture
def card(link: ChartLink, qtbot: QtBot) -> ChartCard:
    card = make_card(link, "Reward", 40)
    qtbot.addWidget(card)
    card.resize(520, 260)
    card.show()
    card.view.redraw()
    return card


def test_chart_is_saved_as_image_drawing_and_values(card: ChartCard, tmp_path: Path) -> None:
    for ending in ("png", "svg", "csv"):
        card.save_as(tmp_path / f"chart.{ending}")
    image = QImage(str(tmp_path / "chart.png"))
    assert (image.width(), image.height()) == (1040, 520)
    drawing = (tmp_path / "chart.svg").read_text()
    assert drawing.count("<polyline") + drawing.count("<path") > 5
    assert "Reward" in drawing
    assert "data:image" not in drawing  # lines, no pixels
    with (tmp_path / "chart.csv").open(newline="") as source:
        rows = list(csv.DictReader(source))
    assert len(rows) == 40
    assert rows[0] == {
        "step": "1", "training": "0.025", "validation, 95 % CI": "0.2",
        "validation, 95 % CI low": "0.1", "validation, 95 % CI high": "0.3",
    }  # fmt: skip
    assert rows[-1]["validation, 95 % CI low"] == ""


def test_unwritable_file_is_reported(card: ChartCard, tmp_path: Path, qtbot: QtBot) -> None:
    for ending in ("svg", "csv", "png"):
        with qtbot.waitSignal(card.save_failed) as failed:
            card.save_as(tmp_path / "missing" / f"chart.{ending}")
        assert failed.args
        assert failed.args[0].startswith("The chart was not saved: ")


def test_axis_becomes_logarithmic(card: ChartCard) -> None:
    card._set_log(True)
    low, high = card._panes[0]._y_range()
    assert (low, high) == (-2.0, 0.0)
    card._set_log(False)
    assert card._panes[0]._y_range()[1] >= 1.0


def test_every_line_stands_in_the_legend(card: ChartCard) -> None:
    for number in range(12):
        card.add_line(f"a metric with a long name {number}", "plot-2")
    card.resize(420, 260)
    assert card._legend.isHidden()
    places = card._wrapped._places(card._wrapped.width())
    assert [entry.words for entry, _, _ in places][-1] == "a metric with a long name 11"
    assert card._wrapped.height() == LINE_PX * (places[-1][2] + 1)
    assert all(x + card._wrapped._width(entry) <= 420 for entry, x, _ in places)


def test_charts_share_one_x_range(link: ChartLink, card: ChartCard, qtbot: QtBot) -> None:
    other = make_card(link, "Loss", 90)
    qtbot.addWidget(other)
    assert card.view.x_range() == other.view.x_range()
    assert card.view.x_range()[1] >= 90
    line = other._panes[0].series[0]
    line.set_data([1, 2], [0.0, 1.0])  # type: ignore[attr-defined]
    other._panes[0].series[1].set_data([], [], [], [])  # type: ignore[attr-defined]
    assert card.view.x_range()[1] < 60


def test_zoom_stays_inside_the_data_and_is_reset(
    link: ChartLink, card: ChartCard, qtbot: QtBot
) -> None:
    button = ZoomButton(link)
    qtbot.addWidget(button)
    assert button.isHidden()
    link.set_zoom((-20.0, 10_000.0))
    assert link.zoom == (0.0, 40.0)
    assert button.words() == "Steps 0 to 40"
    button.click()
    assert link.zoom is None
    assert button.isHidden()


def test_tooltip_has_raw_and_smoothed_values(card: ChartCard, link: ChartLink) -> None:
    words = "".join(span.words for span in card.view.tip_for(20).lines[0])
    assert words.startswith("training 0.50, smoothed 0.")
    link.set_smoothing(0.0)
    words = "".join(span.words for span in card.view.tip_for(20).lines[0])
    assert words == "training 0.50"


def test_line_of_another_run_holds_between_its_points() -> None:
    line = HeldLineSeries("b", "plot-2")
    line.set_data([10, 20], [1.0, 2.0])
    assert line.tooltip_at(15) == [("b", "1.00")]
    assert line.tooltip_at(20) == [("b", "2.00")]
    assert line.tooltip_at(9) == line.tooltip_at(21) == []


def test_slider_sets_smoothing_by_keys_and_mouse(link: ChartLink, qtbot: QtBot) -> None:
    slider = SmoothingSlider(link)
    qtbot.addWidget(slider)
    slider.resize(slider.sizeHint())
    slider.show()
    QTest.keyClick(slider, Qt.Key.Key_Left)
    assert link.smoothing == pytest.approx(0.7)
    QTest.keyClick(slider, Qt.Key.Key_Home)
    assert link.smoothing == 0.0
    QTest.mouseClick(slider, Qt.MouseButton.LeftButton, pos=QPoint(68 + 84, 13))
    assert link.smoothing == pytest.approx(0.95)
    assert slider.accessibleDescription() == "0.95"


def test_header_drag_moves_a_chart_in_its_section(link: ChartLink, qtbot: QtBot) -> None:
    grid = ChartGrid()
    qtbot.addWidget(grid)
    cards: list[QWidget] = [make_card(link, f"Chart {n}", 10) for n in range(4)]
    extra = make_card(link, "Extra", 10)
    grid.set_sections([Section("", "", cards), Section("More", "", [extra])])
    grid.resize(900, 700)
    grid.show()
    first, last = cards[0], cards[3]
    assert isinstance(first, ChartCard)
    first.dragged.connect(lambda at: grid.follow_drag(first, at))
    dropped: list[bool] = []
    first.dropped.connect(lambda: dropped.append(True))
    goal = first._header.mapFromGlobal(last.mapToGlobal(QPoint(20, 20)))
    QTest.mousePress(first._header, Qt.MouseButton.LeftButton, pos=QPoint(40, 10))
    QTest.mouseMove(first._header, QPoint(60, 20))
    QTest.mouseMove(first._header, goal)
    QTest.mouseRelease(first._header, Qt.MouseButton.LeftButton, pos=QPoint(40, 10))
    assert grid.cards.index(first) == 3
    assert dropped == [True]
    grid.follow_drag(first, extra.mapToGlobal(QPoint(10, 10)))
    assert grid.cards[-1] is extra  # a chart stays in its section
