"""Plain-text tooltips: Qt guesses rich text in tooltips, and would load resources that it names."""

import html

from PySide6.QtGui import QAction
from PySide6.QtWidgets import QWidget

LONGEST = 2000
"""Maximum characters; a longer tooltip covers the screen."""


def plain_tip(words: str) -> str:
    """Format text as a tooltip that shows every character literally.

    Text without markup characters is returned unchanged; anything else is escaped inside a rich
    text that preserves line breaks. Models return this for `ToolTipRole`.
    """
    words = words if len(words) <= LONGEST else f"{words[:LONGEST]}…"
    if "<" not in words and "&" not in words:
        return words
    return f'<p style="white-space: pre-wrap">{html.escape(words)}</p>'


def set_tip(target: QWidget | QAction, words: str) -> None:
    """Set the tooltip of a widget; the only place that may."""
    target.setToolTip(plain_tip(words))
