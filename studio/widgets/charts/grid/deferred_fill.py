"""Fill charts in small batches per event loop turn, to keep the window responsive."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from PySide6.QtCore import QObject, QTimer

AT_ONCE = 3
C = TypeVar("C")


class DeferredFill(QObject, Generic[C]):
    """Scheduler that calls `fill` for charts: the first at once, others in later turns."""

    def __init__(self, fill: Callable[[C], None], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._fill = fill
        self._left: list[C] = []
        self._turn = QTimer(self)
        self._turn.setSingleShot(True)
        self._turn.setInterval(0)
        self._turn.timeout.connect(self._go_on)

    def start(self, charts: Iterable[C]) -> None:
        """Fill these charts, one after the other, and no others. Charts still pending from an
        earlier call come first, so that repeated calls reach all of them."""
        wanted = list(charts)
        waiting = [chart for chart in self._left if chart in wanted]
        self._left = waiting + [chart for chart in wanted if chart not in waiting]
        self._go_on()

    def _go_on(self) -> None:
        now, self._left = self._left[:AT_ONCE], self._left[AT_ONCE:]
        for chart in now:
            self._fill(chart)
        if self._left:
            self._turn.start()
