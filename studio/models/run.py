"""Selected run: its folded state, and signals when it changes."""

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QObject, Signal, Slot

from engine.protocol.records.runs import RunSummary
from studio.models.event_feed import Feed
from studio.store.runs.runs import RunStore
from studio.store.runs.state import RunState

Floats = NDArray[np.float64]


class RunModel(QObject):
    """Selected run, or none. `changed` is emitted at most 30 times a second."""

    selected = Signal()
    changed = Signal()

    def __init__(self, store: RunStore, feed: Feed, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self.run_id = ""
        feed.run_changed.connect(self._run_changed)

    @property
    def state(self) -> RunState:
        """Return the state folded from the run's events; an empty one without a run."""
        return self._store.state(self.run_id)

    @property
    def summary(self) -> RunSummary | None:
        """Return the engine's summary of the run; None without a run."""
        return self._store.summary(self.run_id)

    @property
    def damaged(self) -> bool:
        """Whether the run is damaged: only its summary can be read, not its events."""
        return self.summary is not None and self.summary.state == "damaged"

    @property
    def origin(self) -> RunState | None:
        """State of the parent run of a branch; None for other runs or an unknown parent."""
        parent = self.summary.parent if self.summary else None
        is_known = parent is not None and self._store.known(parent.run_id)
        return self._store.state(parent.run_id) if parent and is_known else None

    @property
    def parent_name(self) -> str:
        """Return the name of the parent run of a branch; otherwise empty."""
        parent = self.summary.parent if self.summary else None
        return parent.name if parent else ""

    def parent_series(self, name: str) -> tuple[Floats, Floats]:
        """Return steps and values of a metric of the parent run; empty if there are none."""
        series = self.origin.series.get(name) if self.origin else None
        if series is None:
            return np.empty(0), np.empty(0)
        return np.array(series.xs), np.array(series.ys)

    def select(self, run_id: str) -> None:
        """Select another run; an empty id selects none."""
        if run_id != self.run_id:
            self.run_id = run_id
            self.selected.emit()
            self.changed.emit()

    def tell(self) -> None:
        """Emit `changed`, after the run's summary was replaced without new events."""
        self.changed.emit()

    def series(self, name: str) -> tuple[Floats, Floats]:
        """Return copies of steps and values of a metric; both empty if there are none."""
        series = self.state.series.get(name)
        if series is None:
            return np.empty(0), np.empty(0)
        return np.array(series.xs), np.array(series.ys)

    def aligned(self, first: str, *others: str) -> list[Floats]:
        """Return the steps of metric `first`, its values, then the values of each of `others` at
        these steps (nan: missing)."""
        xs, ys = self.series(first)
        rows = [xs, ys]
        for name in others:
            other_xs, other_ys = self.series(name)
            if np.array_equal(xs, other_xs):
                rows.append(other_ys)
                continue
            row = np.full(len(xs), np.nan)
            _, here, there = np.intersect1d(xs, other_xs, return_indices=True)
            row[here] = other_ys[there]
            rows.append(row)
        return rows

    def names(self, prefix: str) -> list[str]:
        """Return the metric names with a prefix, in order of their first appearance."""
        return [name for name in self.state.series if name.startswith(prefix)]

    @Slot(str)
    def _run_changed(self, run_id: str) -> None:
        if run_id == self.run_id or (self.origin and run_id == self.origin.run_id):
            self.changed.emit()
