"""Garbage collection restricted to the GUI thread.

A QObject in a reference cycle is destroyed by whichever thread triggers the collector, but Qt
objects with timers or windows must not be destroyed in the event pump's thread. Automatic
collection is therefore off, and a timer collects instead."""

import gc

from PySide6.QtCore import QObject, QTimer

EVERY_MS = 500


class GuiCollector(QObject):
    """Timer that runs the garbage collector in the GUI thread: young generations often, the oldest
    when due."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._timer = QTimer(self)
        self._timer.setInterval(EVERY_MS)
        self._timer.timeout.connect(self._collect)

    def start(self) -> None:
        gc.collect()
        gc.freeze()  # imported objects are never freed: keeps the oldest generation small
        gc.disable()
        self._timer.start()

    def stop(self) -> None:
        self._timer.stop()
        gc.enable()

    def _collect(self) -> None:
        """Collect the generations whose count exceeds their threshold, as the automatic collector
        would."""
        counts, thresholds = gc.get_count(), gc.get_threshold()
        due = [g for g in range(3) if counts[g] > max(1, thresholds[g])]
        if due:
            gc.collect(max(due))
