"""Dialog for a file that another program changed under unsaved edits."""

import difflib
from typing import Literal

from PySide6.QtGui import QTextOption
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from studio.services.notifications import Choice, ask
from studio.theme.theme import theme
from studio.widgets.forms.form_fields import Field
from studio.widgets.transcript.items import shown_part

CHANGED = "file.changed"
"""Code of the problem with which the engine refuses to overwrite a changed file."""
MOST_LINES, MOST_CHARS = 2000, 200_000
Answer = Literal["mine", "file", ""]


class DifferenceField(Field):
    """Read-only field with a unified diff; its value is always empty."""

    def __init__(self, mine: str, theirs: str) -> None:
        text = QPlainTextEdit()
        text.setReadOnly(True)
        text.setFont(theme().font("mono-small"))
        text.setWordWrapMode(QTextOption.WrapMode.NoWrap)
        text.setMinimumSize(560, 320)
        text.setPlainText(difference(mine, theirs))
        super().__init__("Difference", text)

    def value(self) -> None:
        return None


def difference(mine: str, theirs: str) -> str:
    """Return the unified diff from the file (`theirs`) to the unsaved text (`mine`), shortened."""
    lines = difflib.unified_diff(
        theirs.splitlines(), mine.splitlines(), "file", "yours", lineterm=""
    )
    words, more = shown_part("\n".join(lines), MOST_LINES, MOST_CHARS)
    return f"{words}\n… {more} more lines" if more else words


async def choose(parent: QWidget, name: str, mine: str, theirs: str) -> Answer:
    """Ask which text of file `name` to keep: unsaved (`mine`) or stored (`theirs`); returns `mine`,
    `file`, or an empty string for Cancel."""
    title = f"{name} was changed by another program"
    words = "You have unsaved changes to the same file. “Keep my changes” overwrites it."
    field: DifferenceField | None = None
    while True:
        choices = [Choice("", "Cancel")]
        if field is None:
            choices.append(Choice("difference", "Show difference"))
        choices += [Choice("file", "Reload the file"), Choice("mine", "Keep my changes", "danger")]
        answer, _ = await ask(parent, title, words, choices, field)
        if answer != "difference":
            return "mine" if answer == "mine" else "file" if answer == "file" else ""
        field = DifferenceField(mine, theirs)
