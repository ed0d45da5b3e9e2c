"""Table of scenarios with reward statistics over time, hardest first by default."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QWidget

from engine.protocol.records.curves import ScenarioCurve
from engine.protocol.requests.runs import TrajectoryQuery
from studio.models.scenario_curves import COLUMNS, CurveTableModel
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.widgets.tables.table import Table

WIDE_PX = 1080
DIFFICULTY = [column.title for column in COLUMNS].index("Difficulty")
# width and kind per model column; spare columns are hidden first
_COLUMNS: tuple[tuple[int | None, str, bool], ...] = (
    (None, "strong", False),
    (168, "sparkline", False),
    (72, "mono", False),
    (72, "figure", False),
    (72, "figure", False),
    (84, "figure", False),
    (96, "figure", False),
    (76, "mono", True),
    (92, "mono", False),
    (72, "figure", False),
    (88, "figure", True),
)


class ScenarioTable(Table):
    """Scenario table of a run. Emits `groups_wanted(query)` when a row is opened."""

    groups_wanted = Signal(object)

    def __init__(self, session: Session, tasks: TaskScope, parent: QWidget | None = None) -> None:
        super().__init__("Scenarios", row_px=44, parent=parent)
        self._session, self._stale = session, False
        self.rows = CurveTableModel(tasks, self)
        self.rows.failed.connect(session.problem_raised)
        self.setModel(self.rows)
        for place, (width, kind, _) in enumerate(_COLUMNS):
            self.set_column(place, width, kind)
        self.horizontalHeader().setSortIndicator(DIFFICULTY, Qt.SortOrder.DescendingOrder)
        self.setSortingEnabled(True)
        self.row_opened.connect(self._open)

    def follow(self, run_id: str) -> None:
        """Show the scenarios of a run and their rewards over time; an empty id clears the table."""
        self._stale = False
        session = self._session  # a restart of the engine replaces its client
        source = (lambda query: session.client.curves(run_id, query)) if run_id else None
        self.rows.set_source(source)

    def refresh(self) -> None:
        """Reload the data; a hidden table does so when it becomes visible."""
        self._stale = not self.isVisible()
        if not self._stale:
            self.rows.refresh()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._stale:
            self.refresh()

    def _open(self, row: int) -> None:
        record = self.rows.record(row)
        if isinstance(record, ScenarioCurve):
            split = self.rows.query.split
            self.groups_wanted.emit(TrajectoryQuery(split=split, scenario_id=record.scenario_id))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        for place, (_, _, spare) in enumerate(_COLUMNS):
            if spare:
                self.setColumnHidden(place, self.width() < WIDE_PX)
