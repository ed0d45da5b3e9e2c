"""Box layouts declared by their parts, instead of one call per part."""

from typing import Final, TypeVar

from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QLayout, QVBoxLayout, QWidget

STRETCH: Final = "stretch"
"""Part that takes the remaining space."""
Part = QWidget | QLayout | int | str | tuple[QWidget | QLayout, int]
"""Widget or layout, alone or with its stretch factor; a number is a gap in pixels."""
Box = TypeVar("Box", bound=QBoxLayout)
Margins = int | tuple[int, int, int, int]
"""Pixels, the same on all sides or left, top, right, bottom."""


def hbox(
    *parts: Part, parent: QWidget | None = None, margins: Margins = 0, spacing: int | None = None
) -> QHBoxLayout:
    """Lay out widgets, layouts or gaps (px) in a row; `spacing` None is the style's, in pixels."""
    return _filled(QHBoxLayout(parent) if parent else QHBoxLayout(), parts, margins, spacing)


def vbox(
    *parts: Part, parent: QWidget | None = None, margins: Margins = 0, spacing: int | None = None
) -> QVBoxLayout:
    """Lay out parts from top to bottom; arguments as in `hbox`."""
    return _filled(QVBoxLayout(parent) if parent else QVBoxLayout(), parts, margins, spacing)


def add(box: QBoxLayout, *parts: Part) -> None:
    """Append widgets, layouts, gaps (pixels) or stretches to a layout."""
    for part in parts:
        inner, stretch = part if isinstance(part, tuple) else (part, 0)
        if isinstance(inner, QWidget):
            box.addWidget(inner, stretch)
        elif isinstance(inner, QLayout):
            box.addLayout(inner, stretch)
        elif isinstance(inner, int):
            box.addSpacing(inner)
        else:
            box.addStretch(1)


def _filled(box: Box, parts: tuple[Part, ...], margins: Margins, spacing: int | None) -> Box:
    box.setContentsMargins(*((margins,) * 4 if isinstance(margins, int) else margins))
    if spacing is not None:
        box.setSpacing(spacing)
    add(box, *parts)
    return box
