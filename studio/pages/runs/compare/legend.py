"""Legend of a comparison: one button per run, in rows; a click hides or shows its lines."""

from collections.abc import Sequence

from PySide6.QtCore import QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from studio.theme.plain_tooltips import set_tip
from studio.widgets.painting import paint
from studio.widgets.painting.focus import KeyboardFocus

HEIGHT, GAP = 24, 6


class RunKey(KeyboardFocus, QAbstractButton):
    """Colour and name of a run; checked while its lines are shown."""

    def __init__(self, name: str, token: str, reference: bool, parent: QWidget) -> None:
        super().__init__(parent)
        self._name, self._token, self._reference = name, token, reference
        self.setCheckable(True)
        self.setChecked(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(f"Show {name}")
        role = "Reference of the comparison. " if reference else ""
        set_tip(self, f"{role}Click to hide or show its lines")

    def sizeHint(self) -> QSize:
        width = 28 + paint.text_width(self._name, "label", 500)
        if self._reference:
            width += 8 + paint.text_width("reference", "caption")
        return QSize(round(width) + 10, HEIGHT)

    def paintEvent(self, event: QPaintEvent) -> None:
        on = self.isChecked()
        with paint.painting(self) as painter:
            edge = "border-strong" if self.underMouse() else "border"
            paint.box(painter, self.rect(), "surface", edge, 6)
            swatch = QRectF(9, self.height() / 2 - 4, 8, 8)
            paint.box(painter, swatch, self._token if on else None, self._token, 2)
            name = QRectF(24, 0, self.width(), self.height())
            paint.text(painter, name, self._name, "text" if on else "faint", "label", 500)
            if self._reference:
                x = 24 + paint.text_width(self._name, "label", 500) + 8
                room = QRectF(x, 0, self.width() - x, self.height())
                paint.text(painter, room, "reference", "faint", "caption")


class RunLegend(QWidget):
    """Legend: `set_runs([(id, name, token), …])`, the reference first."""

    hidden_changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._keys: dict[str, RunKey] = {}
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_runs(self, runs: Sequence[tuple[str, str, str]]) -> None:
        for key in self._keys.values():
            key.setParent(None)
            key.deleteLater()
        self._keys = {
            run_id: RunKey(name, token, not place, self)
            for place, (run_id, name, token) in enumerate(runs)
        }
        for key in self._keys.values():
            key.toggled.connect(lambda _: self.hidden_changed.emit())
            key.show()
        self._place()

    def hidden(self) -> frozenset[str]:
        """Return the ids of the runs whose lines are hidden."""
        return frozenset(run_id for run_id, key in self._keys.items() if not key.isChecked())

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    def _place(self) -> None:
        x = y = 0
        for key in self._keys.values():
            width = min(key.sizeHint().width(), self.width())
            if x and x + width > self.width():
                x, y = 0, y + HEIGHT + GAP
            key.setGeometry(QRect(x, y, width, HEIGHT))
            x += width + GAP
        self.setFixedHeight(y + HEIGHT)
