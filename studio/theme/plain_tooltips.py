"""Plain-text tooltips: Qt guesses rich text in tooltips, and would load resources that it names."""

import html

from PySide6.QtGui import QAction
from PySide6.QtWidgets import QWidget

LONGEST = 2000
"""Maximum number of characters, since a longer tooltip covers the screen."""


def plain_tip(words: str) -> str:
    """Format text as a tooltip that shows every character literally. Text without markup characters
    is returned unchanged; anything else is escaped inside a rich text that preserves line breaks.
    Models return this for `ToolTipRole`."""
    words = words if len(words) <= LONGEST else f"{words[:LONGEST]}…"
    if "<" not in words and "&" not in words:
        return words
    return f'<p style="white-space: pre-wrap">{html.escape(words)}</p>'


def set_tip(target: QWidget | QAction, words: str) -> None:
    """Set a plain-text tooltip of a widget or action; used everywhere for `setToolTip`."""
    target.setToolTip(plain_tip(words))
