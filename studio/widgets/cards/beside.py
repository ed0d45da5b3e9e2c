"""Two parts beside each other in a wide window, one of them at a time in a narrow one."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QSplitter, QWidget

from studio.widgets.controls.segmented import Segmented
from studio.widgets.layouts import STRETCH, hbox, vbox

WIDE_PX, GAP_PX = 1400, 12


class Beside(QWidget):
    """Pair of parts with names: `Beside(("Examples", first), ("Chat", second), shown=1)`; `shown`
    is the part that a narrow window begins with. Below WIDE_PX a switch selects the part."""

    def __init__(
        self,
        first: tuple[str, QWidget],
        second: tuple[str, QWidget],
        shown: int = 0,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.switch = Segmented((first[0], second[0]), "View")
        self.switch.set_index(shown)
        self.splitter = QSplitter(Qt.Orientation.Horizontal)
        self.splitter.setProperty("gap", True)
        self.splitter.setHandleWidth(GAP_PX)
        self.splitter.setChildrenCollapsible(False)
        self._parts = (first[1], second[1])
        for part in self._parts:
            self.splitter.addWidget(part)
            self.splitter.setStretchFactor(self.splitter.indexOf(part), 1)
        self._line = QWidget()
        hbox(self.switch, STRETCH, parent=self._line)
        vbox(self._line, (self.splitter, 1), parent=self, spacing=8)
        self.switch.chosen.connect(lambda _: self._place())
        self._place()

    def show_part(self, place: int) -> None:
        """Show a part, 0 or 1, also in a narrow window."""
        self.switch.set_index(place)
        self._place()

    def _place(self) -> None:
        wide = self.width() >= WIDE_PX
        self._line.setVisible(not wide)
        for place, part in enumerate(self._parts):
            part.setVisible(wide or place == self.switch.index())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if (event.size().width() >= WIDE_PX) == self._line.isVisibleTo(self):
            self._place()
            self.splitter.setSizes([self.width() // 2, self.width() // 2])
