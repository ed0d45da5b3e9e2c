"""A chart as an image, a drawing, or a table of its values."""

import csv
from pathlib import Path

import numpy as np
from PySide6.QtCore import QPoint, QRect, QSize
from PySide6.QtGui import QPainter, QPixmap
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QApplication, QGraphicsView, QWidget

from studio.widgets.charts.pane import Pane
from studio.widgets.charts.series import BandSeries, BarSeries, LineSeries, Series, ValidationSeries
from studio.widgets.charts.view import ChartView

SCALE = 2
"""Pixels of the image per pixel of the window."""


def picture(card: QWidget) -> QPixmap:
    """Return the chart as an image in twice the resolution of the window."""
    image = QPixmap(card.size() * SCALE)
    image.setDevicePixelRatio(SCALE)
    card.render(image)
    return image


def copy_picture(card: QWidget) -> None:
    QApplication.clipboard().setPixmap(picture(card))


def save_picture(card: QWidget, file: Path) -> None:
    """Write the chart as PNG. Raises OSError."""
    if not picture(card).save(str(file), "PNG"):
        raise OSError(f"{file} cannot be written")


def save_drawing(card: QWidget, view: ChartView, file: Path) -> None:
    """Write a chart (`card` with its `view`) as SVG, whose lines and texts can be edited. Raises
    OSError."""
    with file.open("wb"):  # a folder that cannot be written is reported here
        pass
    drawing = QSvgGenerator()
    drawing.setFileName(str(file))
    drawing.setSize(QSize(card.size()))
    drawing.setViewBox(QRect(0, 0, card.width(), card.height()))
    drawing.setTitle(card.accessibleName())
    before = view.cacheMode()
    view.setCacheMode(QGraphicsView.CacheModeFlag.CacheNone)
    for pane in view.panes:
        pane.set_cached(False)
    try:
        painter = QPainter(drawing)
        card.render(painter, QPoint())
        painter.end()
    finally:
        view.setCacheMode(before)
        for pane in view.panes:
            pane.set_cached(True)


def save_values(panes: tuple[Pane, ...], file: Path) -> None:
    """Write the raw values of all series as CSV: a column of steps, then one per series; a missing
    value is empty. Raises OSError."""
    columns = [column for pane in panes for series in pane.series for column in _columns(series)]
    steps = sorted({step for _, values in columns for step in values})
    with file.open("w", newline="", encoding="utf-8") as target:
        table = csv.writer(target)
        table.writerow(["step", *(_title(name) for name, _ in columns)])
        for step in steps:
            table.writerow([f"{step:g}", *(values.get(step, "") for _, values in columns)])


def _title(name: str) -> str:
    """Return a column title that no spreadsheet takes for a formula."""
    return f"'{name}" if name[:1] in "=+-@\t" else name


def _columns(series: Series) -> list[tuple[str, dict[float, str]]]:
    """Return (title, step → value) of a series; a band or an interval has several."""
    match series:
        case LineSeries():
            arrays = [(series.name, series.values)]
        case BandSeries():
            arrays = [(f"{series.name} low", series.low), (f"{series.name} high", series.high)]
        case BarSeries():
            arrays = list(zip(series.names, series.stack, strict=True))
        case ValidationSeries():
            name = series.name
            arrays = [
                (name, series.means),
                (f"{name} low", series.low),
                (f"{name} high", series.high),
            ]
        case _:
            raise AssertionError(f"{type(series).__name__} has no columns")
    return [
        (
            name,
            {
                float(step): repr(float(value))
                for step, value in zip(series.steps, values, strict=True)
                if np.isfinite(value)
            },
        )
        for name, values in arrays
    ]
