"""Rubric templates, offered above the editor while a project has no rubric version."""

import tomllib

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QWidget

from studio.runtime.paths import resource
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import vbox
from studio.widgets.text.text import Text


class StarterRubrics(QWidget):
    """Buttons of the templates; emits `chosen(source)`. Two columns: a single row would be wider
    than the editor."""

    chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.grid = QGridLayout()
        self.grid.setSpacing(8)
        for place, (file, words) in enumerate(presets()):
            button = Button(words, "outlined", height=28)
            button.clicked.connect(lambda _=False, file=file: self.chosen.emit(text_of(file)))
            self.grid.addWidget(button, place // 2, place % 2, Qt.AlignmentFlag.AlignLeft)
        self.grid.setColumnStretch(1, 1)
        heading = Text("No rubric yet", "body", 600)
        line = "Start from a template and change it, or write your own below."
        advice = Text(line, "label", 400, "muted", wrap=True)
        vbox(heading, advice, self.grid, parent=self, margins=(16, 16, 16, 8), spacing=8)


def presets() -> list[tuple[str, str]]:
    """Return (file, purpose) of the rubric templates."""
    index = resource("rubrics", "index.toml").read_text(encoding="utf-8")
    return list(tomllib.loads(index).items())


def text_of(file: str) -> str:
    """Return the text of a rubric template by its file name."""
    return resource("rubrics", file).read_text(encoding="utf-8")
