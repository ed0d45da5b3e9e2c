"""Phases of a step as bars with lengths proportional to their usual duration."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.text import formatting
from studio.widgets.painting import paint
from studio.widgets.tables.meter import paint_meter

_LEAST_PX, _GAP = 44.0, 8.0


@dataclass(frozen=True)
class Phase:
    """Phase: label, usual seconds, done share (0 to 1), seconds so far, plot token."""

    words: str
    usual_s: float
    share: float = 0.0
    elapsed_s: float | None = None
    token: str = "plot-1"


class PhaseBars(QWidget):
    """Phase bars: `set_phases([Phase("Roll out", 74, 1.0, 74), Phase("Judge", 30, 0.6, 17,
    "plot-2"), …])`."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._phases: tuple[Phase, ...] = ()
        self.setFixedHeight(26)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_phases(self, phases: Sequence[Phase]) -> None:
        self._phases = tuple(phases)
        self.setAccessibleName(
            "Phases: "
            + ", ".join(
                f"{p.words} {'done' if p.share >= 1 else formatting.percent(p.share)}"
                for p in phases
            )
        )
        self.update()

    def _widths(self) -> list[float]:
        room = self.width() - _GAP * (len(self._phases) - 1) - _LEAST_PX * len(self._phases)
        usual = [max(0.0, phase.usual_s) ** 0.7 for phase in self._phases]
        total = sum(usual) or 1.0
        return [_LEAST_PX + max(0.0, room) * part / total for part in usual]

    def sizeHint(self) -> QSize:
        return QSize(280, 26)

    def paintEvent(self, event: QPaintEvent) -> None:
        x = 0.0
        with paint.painting(self) as painter:
            for phase, width in zip(self._phases, self._widths(), strict=True):
                paint_meter(painter, QRectF(x, 0, width, 6), phase.share, phase.token)
                line = QRectF(x, 11, width + 2, 15)
                running = 0 < phase.share < 1
                tone = "text" if running else "faint"
                used = paint.text(painter, line, phase.words, tone, "caption")
                if phase.elapsed_s is not None:
                    elapsed = formatting.clock(phase.elapsed_s)
                    if paint.text_width(elapsed, "caption") + used + 6 < width:
                        right = line.adjusted(0, 0, -2, 0)
                        paint.text(painter, right, elapsed, tone, "caption", align=paint.RIGHT)
                x += width + _GAP
