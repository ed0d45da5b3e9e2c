"""Row of chips, as many as fit."""

from collections.abc import Sequence

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.widgets.text.chip import Chip

_GAP = 8


class ChipLine(QWidget):
    """Chips: `set_chips([…])` shows the first that fit, at the right end, without widening the
    row."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._chips: Sequence[Chip] = ()
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setFixedHeight(20)

    def set_chips(self, chips: Sequence[Chip]) -> None:
        for old in self._chips:
            old.deleteLater()
        self._chips = chips
        for chip in chips:
            chip.setParent(self)
        self._place()

    def shown(self) -> list[Chip]:
        """Return the chips that fit and are visible."""
        return [chip for chip in self._chips if not chip.isHidden()]

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    def _place(self) -> None:
        widths = [chip.sizeHint().width() + _GAP for chip in self._chips]
        while widths and sum(widths) - _GAP > self.width():
            widths.pop()
        x = self.width() - sum(widths) + _GAP
        for place, chip in enumerate(self._chips):
            if place < len(widths):
                chip.setGeometry(x, 0, widths[place] - _GAP, self.height())
                x += widths[place]
            chip.setVisible(place < len(widths))
