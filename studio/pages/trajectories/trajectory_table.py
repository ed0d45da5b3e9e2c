"""Table of trajectories; some columns are hidden in a narrow window."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent

from studio.models.trajectories import TrajectoryTableModel
from studio.widgets.tables.table import Table

WIDE_PX = 960
# width and kind per model column; the reader also shows spare columns
_COLUMNS: tuple[tuple[int | None, str, bool], ...] = (
    (None, "strong", False),
    (60, "figure", False),
    (72, "figure", True),
    (72, "mono", False),
    (84, "advantage", False),
    (60, "figure", True),
    (72, "figure", False),
    (72, "figure", True),
    (104, "text", False),
    (160, "text", False),
)


class AttemptTable(Table):
    """Table of trajectories, sorted by the engine; narrow ones hide number, turns and time."""

    def __init__(self, model: TrajectoryTableModel) -> None:
        super().__init__("Trajectories")
        self.setModel(model)
        for place, (width, kind, _) in enumerate(_COLUMNS):
            self.set_column(place, width, kind)
        self.setSortingEnabled(True)
        self.horizontalHeader().setSortIndicator(-1, Qt.SortOrder.DescendingOrder)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        for place, (_, _, spare) in enumerate(_COLUMNS):
            if spare:
                self.setColumnHidden(place, self.width() < WIDE_PX)
