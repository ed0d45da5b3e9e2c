"""Buttons of the window: a stable name for each, and whether the mouse can reach it."""

import re
from collections.abc import Iterator

from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QAbstractButton, QScrollArea, QWidget

from studio.main_window import MainWindow
from studio.pages.page import Page
from studio.widgets.cards.sheet import Sheet
from studio.widgets.window.sidebar import Sidebar

LEAST_PX, PADDING_PX = 16, 12
"""Pixels by which the space around a button's text may shrink on each side before it counts as
cut.
"""


def buttons_of(page: QWidget) -> list[QAbstractButton]:
    """Return the studio's own buttons inside a widget."""
    buttons = page.findChildren(QAbstractButton)
    return [one for one in buttons if type(one).__module__.startswith("studio.")]


def name_of(button: QAbstractButton) -> str:
    """Name a button: `JudgeChoice._use` if an ancestor has it as an attribute, else `Owner:
    words`; shared widgets get the suffix ` of ` and their place."""
    owner = button.parentWidget()
    while owner is not None:
        if _ours(owner) and (attribute := _attribute(owner, button)):
            return f"{type(owner).__name__}.{attribute}{_place(owner)}"
        if isinstance(owner, Page):
            break
        owner = owner.parentWidget()
    nearest = next(_ours_above(button), None)
    words = re.sub(r"\d[\d,.]*", "#", button.text() or button.accessibleName())
    full_name = f"{type(nearest).__name__}: {words}"
    return full_name + _place(nearest) if nearest is not None else full_name


def _place(owner: QWidget) -> str:
    """Return the nearest page-specific widget above a shared one, as a suffix."""
    if not type(owner).__module__.startswith("studio.widgets."):
        return ""
    for above in _ours_above(owner):
        if isinstance(above, MainWindow):
            return ""
        if not type(above).__module__.startswith("studio.widgets."):
            return f" of {type(above).__name__}"
    return ""


def _attribute(owner: QWidget, button: QAbstractButton) -> str:
    """Return the owner's attribute that holds a button, alone or in a collection."""
    for name, value in vars(owner).items():
        if value is button and not (isinstance(owner, Sheet) and name == "_before"):
            return name
        collection: object = value
        if isinstance(collection, dict) and any(one is button for one in collection.values()):
            key = next(key for key, one in collection.items() if one is button)
            return f"{name}[{key}]" if isinstance(owner, Sidebar) else f"{name}[]"
        if isinstance(collection, list | tuple) and any(one is button for one in collection):
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
    """Return why the mouse cannot reach a button at its center, or an empty string."""
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
    """Return why a visible button is hard to hit or to read, or an empty string."""
    if min(button.width(), button.height()) < LEAST_PX:
        return f"too small: {button.width()}x{button.height()}"
    least = button.minimumSizeHint()
    if button.width() < least.width() - PADDING_PX or button.height() < least.height():
        return f"cut: {button.size().toTuple()} of {least.toTuple()}"
    window = button.window()
    corners = (button.rect().topLeft(), button.rect().bottomRight())
    if not all(window.rect().contains(button.mapTo(window, corner)) for corner in corners):
        return "partly outside of the window"
    return ""


def bring_into_view(button: QAbstractButton) -> None:
    """Scroll every scroll area that contains the button, like a person with the wheel."""
    owner = button.parentWidget()
    while owner is not None:
        content = owner.widget() if isinstance(owner, QScrollArea) else None
        if content is not None and content.isAncestorOf(button):
            owner.ensureWidgetVisible(button)  # type: ignore[attr-defined]
        owner = owner.parentWidget()


def centre(button: QAbstractButton) -> QPoint:
    return button.rect().center()
