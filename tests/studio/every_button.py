"""All buttons of the pages: a stable name for each, and whether a mouse reaches it."""

import re
from collections.abc import Iterator

from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QAbstractButton, QScrollArea, QWidget

from studio.pages.page import Page


def buttons_of(page: QWidget) -> list[QAbstractButton]:
    """Every button inside a page, those that Qt makes for itself aside."""
    found = page.findChildren(QAbstractButton)
    return [one for one in found if type(one).__module__.startswith("studio.")]


def name_of(button: QAbstractButton) -> str:
    """`JudgeChoice._use` where an ancestor keeps it in an attribute, else `Owner: words`."""
    owner = button.parentWidget()
    while owner is not None:
        ours = type(owner).__module__.startswith("studio.")
        if ours and (attribute := _attribute(owner, button)):
            return f"{type(owner).__name__}.{attribute}"
        if isinstance(owner, Page):
            break
        owner = owner.parentWidget()
    nearest = next(_ours_above(button))
    words = re.sub(r"[\d,.]+", "#", button.text() or button.accessibleName())
    return f"{type(nearest).__name__}: {words}"


def _attribute(owner: QWidget, button: QAbstractButton) -> str:
    """The attribute of an owner that holds a button, alone or among others."""
    for name, value in vars(owner).items():
        if value is button:
            return name
        held: object = value
        if isinstance(held, dict) and any(one is button for one in held.values()):
            key = next(key for key, one in held.items() if one is button)
            return f"{name}[{key}]" if isinstance(key, str) and "/" not in key else f"{name}[]"
        if isinstance(held, list | tuple) and any(one is button for one in held):
            return f"{name}[]"
    return ""


def _ours_above(button: QAbstractButton) -> Iterator[QWidget]:
    owner = button.parentWidget()
    while owner is not None:
        if type(owner).__module__.startswith("studio."):
            yield owner
        owner = owner.parentWidget()


def obstacle(button: QAbstractButton) -> str:
    """Reason why the mouse does not reach a button at its centre; empty where it does."""
    if not button.isVisible():
        return "hidden"
    if not button.isEnabled():
        return "disabled"
    owner = button.parentWidget()
    while owner is not None:
        content = owner.widget() if isinstance(owner, QScrollArea) else None
        if content is not None and content.isAncestorOf(button):
            owner.ensureWidgetVisible(button)  # type: ignore[attr-defined]
        owner = owner.parentWidget()
    window = button.window()  # its childAt: the screen of the tests is smaller than the window
    at = window.childAt(button.mapTo(window, centre(button)))
    if at is not button:
        return f"covered by {type(at).__name__}"
    return ""


def centre(button: QAbstractButton) -> QPoint:
    return button.rect().center()
