"""Flaws of a laid out page: controls outside of their parent, cut words, overlapping controls."""

from collections.abc import Iterator
from itertools import combinations

from PySide6.QtCore import QRect
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractScrollArea,
    QComboBox,
    QLineEdit,
    QScrollArea,
    QSplitterHandle,
    QStackedWidget,
    QWidget,
)

from studio.widgets.cards.facts import FactRow
from studio.widgets.cards.sheet import Sheet
from studio.widgets.charts.info import InfoMark
from studio.widgets.controls.segmented import Segmented
from studio.widgets.controls.toggle import Toggle
from studio.widgets.text.chip import Chip
from studio.widgets.text.phrase import Phrase
from studio.widgets.text.text import Text

CONTROLS = (QAbstractButton, QLineEdit, QComboBox, Segmented, Toggle, Chip, Text, Phrase, FactRow)
FLOATING = (Sheet, InfoMark)
LEAST_CHARACTERS = 6
"""Characters that an elided text keeps at least."""
LEAST_PHRASE = 0.5
"""Share of a phrase on one line that stays visible at least."""
SLACK_PX = 2
PADDING_PX = 24
"""Padding of a button that may be missing before its words count as cut."""


def flaws(top: QWidget) -> list[str]:
    """Describe what is cut off or overlaps inside a visible widget; empty if nothing is."""
    shown = [one for one in top.findChildren(QWidget) if one.isVisible() and not _floats(one)]
    found = [
        f
        for one in shown
        if isinstance(one, CONTROLS)
        for f in (_outside(one, top), _cut(one))
        if f
    ]
    return found + [f"{_name(a)} overlaps {_name(b)}" for a, b in _overlaps([top, *shown])]


def _floats(widget: QWidget) -> bool:
    owner: QWidget | None = widget
    while owner is not None:
        if isinstance(owner, FLOATING):
            return True
        owner = owner.parentWidget()
    return False


def _name(widget: QWidget) -> str:
    words = widget.text() if hasattr(widget, "text") and not isinstance(widget, Text) else ""
    owner = widget.parentWidget()
    while owner is not None and not type(owner).__module__.startswith("studio."):
        owner = owner.parentWidget()
    said = words or widget.accessibleName()
    return f"{type(widget).__name__} '{said[:50]}' of {type(owner).__name__}"


def _outside(widget: QWidget, top: QWidget) -> str:
    """Return where a widget leaves an ancestor; down a scroll area it may."""
    inner, owner = widget, widget.parentWidget()
    rect = QRect(widget.rect())
    while owner is not None and inner is not top:
        rect = QRect(inner.mapTo(owner, rect.topLeft()), rect.size())
        area = owner.parentWidget()
        scrolls = isinstance(area, QAbstractScrollArea) and area.viewport() is owner
        if scrolls and not isinstance(area, QScrollArea):
            return ""  # a view scrolls its editors itself
        room = owner.rect().adjusted(-SLACK_PX, -SLACK_PX, SLACK_PX, SLACK_PX)
        wide = rect.left() >= room.left() and rect.right() <= room.right()
        if scrolls and isinstance(area, QScrollArea):
            if not wide and not area.horizontalScrollBar().isVisible():
                return (
                    f"{_name(widget)} is cut at {rect.right() - room.right()} px by a scroll area"
                )
            return _outside(area, top)
        if not wide or rect.top() < room.top() or rect.bottom() > room.bottom():
            return (
                f"{_name(widget)} leaves {type(owner).__name__}: {rect.getRect()}, {room.getRect()}"  # type: ignore[no-untyped-call]
            )
        inner, owner = owner, owner.parentWidget()
    return ""


def _cut(widget: QWidget) -> str:
    """Return how the words of a widget are cut, if they are."""
    wanted, width = widget.sizeHint().width(), widget.width()
    match widget:
        case Text() if widget.wordWrap():
            cut = widget.heightForWidth(width) > widget.height() + SLACK_PX
        case Text() if widget.text() != widget.words():
            cut = len(widget.text()) - 1 < LEAST_CHARACTERS
        case Phrase() if widget.hasHeightForWidth():
            cut = widget.heightForWidth(width) > widget.height() + SLACK_PX
        case Phrase():
            cut = width < LEAST_PHRASE * wanted
        case FactRow():
            cut = (
                width < widget.minimumSizeHint().width()
                or widget.height() < widget.sizeHint().height()
            )
        case QAbstractButton():
            cut = width < widget.minimumSizeHint().width() - PADDING_PX
        case QLineEdit() | QComboBox():
            cut = width < 60
        case _:
            cut = width < wanted - SLACK_PX
    return f"{_name(widget)} is cut: {width} of {wanted} px" if cut else ""


def _overlaps(owners: list[QWidget]) -> Iterator[tuple[QWidget, QWidget]]:
    """Yield visible siblings that cover each other by more than the slack."""
    for owner in owners:
        if isinstance(owner, QStackedWidget | QAbstractScrollArea):
            continue
        inside = [
            one
            for one in owner.children()
            if isinstance(one, QWidget)
            and one.isVisible()
            and not one.isWindow()
            and not isinstance(one, (*FLOATING, QSplitterHandle))
        ]
        for first, second in combinations(inside, 2):
            both = first.geometry().intersected(second.geometry())
            if both.width() > SLACK_PX and both.height() > SLACK_PX:
                yield first, second
