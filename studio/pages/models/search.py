"""Search field of the Models page."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent

from studio.widgets.controls.inputs import SearchInput


class ModelSearch(SearchInput):
    """Search field: Enter emits `wanted(words)`, emptying it `cleared`, Down `list_wanted`."""

    wanted = Signal(str)
    cleared = Signal()
    list_wanted = Signal()

    def __init__(self) -> None:
        super().__init__("Search models", "Search Hugging Face, or type org/name, then press Enter")
        self.textChanged.connect(self._changed)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.wanted.emit(self.text())
        elif event.key() == Qt.Key.Key_Down:
            self.list_wanted.emit()
        else:
            super().keyPressEvent(event)

    def _changed(self, words: str) -> None:
        if not words:
            self.cleared.emit()
