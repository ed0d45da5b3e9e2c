"""Advantages of a group as bars, with a pending label applied; an ochre tick shows each previous
value."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.painting import paint

_BAR_PX, _LABEL_PX = 18.0, 14.0


@dataclass(frozen=True)
class AdvantageBar:
    """Trajectory of the group: number (from 1), advantage before and after a pending label (None:
    unscored)."""

    number: int
    before: float | None
    after: float | None
    changed: bool = False
    focused: bool = False

    def accessible_text(self) -> str:
        """Describe trajectory number and advantage for screen readers: "3: +0.20 to −0.10"."""
        now = formatting.signed(self.after) if self.after is not None else "none"
        was = formatting.signed(self.before) if self.before is not None else "none"
        return f"{self.number}: {was} to {now}" if self.changed else f"{self.number}: {now}"


class AdvantageBars(QWidget):
    """Bars: `set_bars([AdvantageBar(6, 0.24, 0.31, changed=True), …])`, in display order."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._bars: tuple[AdvantageBar, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(120, 56)

    def set_bars(self, bars: Sequence[AdvantageBar]) -> None:
        self._bars = tuple(bars)
        self.setAccessibleName(
            f"Advantages: {', '.join(bar.accessible_text() for bar in bars) or 'none'}"
        )
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(300, 72)

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self._bars:
            return
        values = [abs(v) for b in self._bars for v in (b.before, b.after) if v is not None]
        largest = max(values, default=0.0) or 1.0
        slot = self.width() / len(self._bars)
        middle = round((self.height() - _LABEL_PX) / 2) + 0.0
        reach = middle - 3
        with paint.painting(self) as painter:
            painter.fillRect(QRectF(0, middle, self.width(), 1), theme().color("border-strong"))
            for place, bar in enumerate(self._bars):
                self._paint_bar(painter, bar, slot * (place + 0.5), middle, reach / largest)

    def _paint_bar(
        self, painter: paint.QPainter, bar: AdvantageBar, x: float, middle: float, scale: float
    ) -> None:
        color = theme().color
        width = min(_BAR_PX, self.width() / len(self._bars) - 6)
        after = bar.after
        height = (after or 0.0) * scale
        if after is not None:
            fill = color("plot-1" if after >= 0 else "plot-5")
            fill = fill if bar.changed or bar.focused else paint.mix(color("raised"), fill, 0.45)
            top = middle - height if height >= 0 else middle + 1
            painter.fillRect(QRectF(x - width / 2, top, width, max(1.0, abs(height))), fill)
        else:
            empty = QRectF(x - width / 2, middle - 6, width, 12)
            paint.hatch(painter, empty, "ghost", 2)
        if bar.changed and bar.before is not None:
            y = middle - bar.before * scale
            painter.fillRect(QRectF(x - width / 2 - 4, y - 1, width + 8, 2), color("plot-4"))
        room = QRectF(x - 14, self.height() - _LABEL_PX, 28, _LABEL_PX)
        tone = "text" if bar.changed or bar.focused else "muted"
        weight = 600 if bar.changed or bar.focused else 400
        paint.text(painter, room, str(bar.number), tone, "caption", weight, paint.CENTER)
