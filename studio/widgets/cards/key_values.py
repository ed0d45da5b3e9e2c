"""Read-only keys and values in columns: derived settings, facts of a checkpoint."""

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.widgets.painting import paint

_ROW, _GAP = 26, 28


class KeyValues(QWidget):
    """Keys and values: `KeyValues(columns=3).set_values([("Loss", "clipped, token mean"), …])`, row
    by row; an optional third entry is the tone of the value."""

    def __init__(
        self, columns: int = 3, *, mono: bool = False, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._columns = columns
        self._style = "mono" if mono else "label"
        self._values: tuple[tuple[str, ...], ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_values(self, values: Sequence[tuple[str, str] | tuple[str, str, str]]) -> None:
        """Replace all entries: (key, value), or (key, value, tone of the value)."""
        self._values = tuple(values)
        self.setAccessibleName("; ".join(f"{key} {value}" for key, value, *_ in values))
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        rows = -(-len(self._values) // self._columns)
        return QSize(180 * self._columns, rows * _ROW)

    def paintEvent(self, event: QPaintEvent) -> None:
        width = (self.width() - _GAP * (self._columns - 1)) / self._columns
        with paint.painting(self) as painter:
            for index, (key, value, *tone) in enumerate(self._values):
                row, column = divmod(index, self._columns)
                cell = QRectF(column * (width + _GAP), row * _ROW, width, _ROW)
                used = paint.text(painter, cell, key, "muted", "label", 400)
                rest = cell.adjusted(used + 12, 0, 0, 0)
                shade = tone[0] if tone else "text"
                paint.text(painter, rest, value, shade, self._style, 400, paint.RIGHT)
