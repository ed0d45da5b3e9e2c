"""Python's cycle collector, only ever in the GUI thread.

A QObject in a reference cycle is destroyed by whichever thread happens to trigger the collector;
Qt objects with timers or windows must not die in the event pump's thread. So automatic collection
is off while the studio lives, and a timer does what it would have done.
"""

import gc

from PySide6.QtCore import QObject, QTimer

EVERY_MS = 500


class GuiCollector(QObject):
    """`start()` and `stop()`; young generations often, the oldest when it is due."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._timer = QTimer(self)
        self._timer.setInterval(EVERY_MS)
        self._timer.timeout.connect(self._collect)

    def start(self) -> None:
        gc.collect()
        gc.freeze()  # what was imported never goes: the oldest generation stays quick
        gc.disable()
        self._timer.start()

    def stop(self) -> None:
        self._timer.stop()
        gc.enable()

    def _collect(self) -> None:
        """The collector's own rule: a generation is due when its count passed its threshold."""
        counts, thresholds = gc.get_count(), gc.get_threshold()
        due = [g for g in range(3) if counts[g] > max(1, thresholds[g])]
        if due:
            gc.collect(max(due))
