"""All buttons of the window: a stable name for each, and whether a mouse reaches it."""

import re
from collections.abc import Iterator

from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QAbstractButton, QScrollArea, QWidget

from studio.main_window import MainWindow
from studio.pages.page import Page
from studio.widgets.cards.sheet import Sheet
from studio.widgets.window.sidebar import Sidebar

LEAST_PX, PADDING_PX = 16, 12
"""Pixels of each side by which the room beside a button's words may shrink before they are cut."""


def buttons_of(page: QWidget) -> list[QAbstractButton]:
    """Every button inside a widget, those that Qt makes for itself aside."""
    found = page.findChildren(QAbstractButton)
    return [one for one in found if type(one).__module__.startswith("studio.")]


def name_of(button: QAbstractButton) -> str:
    """`JudgeChoice._use` where an ancestor keeps it in an attribute, else `Owner: words`; the part
    of a widget that several places use ends in ` of ` and that place."""
    owner = button.parentWidget()
    while owner is not None:
        if _ours(owner) and (attribute := _attribute(owner, button)):
            return f"{type(owner).__name__}.{attribute}{_place(owner)}"
        if isinstance(owner, Page):
            break
        owner = owner.parentWidget()
    nearest = next(_ours_above(button), None)
    words = re.sub(r"\d[\d,.]*", "#", button.text() or button.accessibleName())
    named = f"{type(nearest).__name__}: {words}"
    return named + _place(nearest) if nearest is not None else named


def _place(owner: QWidget) -> str:
    """The nearest widget of a page above one that belongs to no page."""
    if not type(owner).__module__.startswith("studio.widgets."):
        return ""
    for above in _ours_above(owner):
        if isinstance(above, MainWindow):
            return ""
        if not type(above).__module__.startswith("studio.widgets."):
            return f" of {type(above).__name__}"
    return ""


def _attribute(owner: QWidget, button: QAbstractButton) -> str:
    """The attribute of an owner that holds a button, alone or among others."""
    for name, value in vars(owner).items():
        if value is button and not (isinstance(owner, Sheet) and name == "_before"):
            return name
        held: object = value
        if isinstance(held, dict) and any(one is button for one in held.values()):
            key = next(key for key, one in held.items() if one is button)
            return f"{name}[{key}]" if isinstance(owner, Sidebar) else f"{name}[]"
        if isinstance(held, list | tuple) and any(one is button for one in held):
            return f"{name}[]"
    return ""


def _ours(widget: QWidget) -> bool:
    return type(widget).__module__.startswith("studio.")


def _ours_above(widget: QWidget) -> Iterator[QWidget]:
    owner = widget.parentWidget()
    while owner is not None:
        if _ours(owner):
            yield owner
        owner = owner.parentWidget()


def obstacle(button: QAbstractButton) -> str:
    """Why the mouse does not reach a button at its centre; empty where it does."""
    if not button.isVisible():
        return "hidden"
    if not button.isEnabled():
        return "disabled"
    bring_into_view(button)
    window = button.window()  # its childAt: the screen of the tests is smaller than the window
    at = window.childAt(button.mapTo(window, centre(button)))
    if at is not button:
        return f"covered by {type(at).__name__}"
    return ""


def flaw(button: QAbstractButton) -> str:
    """Why a button in view is hard to hit or to read; empty where it is neither."""
    if min(button.width(), button.height()) < LEAST_PX:
        return f"too small: {button.width()}x{button.height()}"
    wanted = button.minimumSizeHint()
    if button.width() < wanted.width() - PADDING_PX or button.height() < wanted.height():
        return f"cut: {button.size().toTuple()} of {wanted.toTuple()}"
    window = button.window()
    corners = (button.rect().topLeft(), button.rect().bottomRight())
    if not all(window.rect().contains(button.mapTo(window, corner)) for corner in corners):
        return "partly outside of the window"
    return ""


def bring_into_view(button: QAbstractButton) -> None:
    """Scroll every area that the button is in, as a person does with the wheel."""
    owner = button.parentWidget()
    while owner is not None:
        content = owner.widget() if isinstance(owner, QScrollArea) else None
        if content is not None and content.isAncestorOf(button):
            owner.ensureWidgetVisible(button)  # type: ignore[attr-defined]
        owner = owner.parentWidget()


def centre(button: QAbstractButton) -> QPoint:
    return button.rect().center()
