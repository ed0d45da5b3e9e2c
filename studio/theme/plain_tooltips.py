"""Tool tips as plain text: Qt guesses rich text in tips, and would load what it names."""

import html

from PySide6.QtGui import QAction
from PySide6.QtWidgets import QWidget

LONGEST = 2000
"""Characters; a longer tip covers the screen."""


def plain_tip(words: str) -> str:
    """The words as a tip that shows every character as it is.

    What has no character of markup stays as it is; everything else is escaped inside a rich text
    of our own, in which line ends are kept. Models return this for `ToolTipRole`.
    """
    words = words if len(words) <= LONGEST else f"{words[:LONGEST]}…"
    if "<" not in words and "&" not in words:
        return words
    return f'<p style="white-space: pre-wrap">{html.escape(words)}</p>'


def set_tip(target: QWidget | QAction, words: str) -> None:
    """Set the tool tip of a widget; the only place that may."""
    target.setToolTip(plain_tip(words))
