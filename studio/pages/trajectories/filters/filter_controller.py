"""Filter of the Trajectories page: names for its completion, marks of what it found, columns of the
table, and export."""

from PySide6.QtCore import QObject, QPoint
from PySide6.QtWidgets import QWidget

from engine.protocol.problems import Refused
from engine.protocol.requests.filters import TextSearch, parse_filter, searches
from engine.protocol.requests.runs import FilterNames, TrajectoryQuery
from studio.models.trajectories import TrajectoryTableModel
from studio.pages.trajectories.filters.export import TrajectoryExport
from studio.pages.trajectories.filters.filter_bar import FilterBar
from studio.pages.trajectories.groups.columns import ColumnsView
from studio.pages.trajectories.reader.reader import Reader
from studio.pages.trajectories.trajectory_table import AttemptTable
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.text.hits import pattern_of_searches


class FilterController(QObject):
    """Connects the filter bar with the table and the reader, for the run that is read."""

    def __init__(
        self,
        session: Session,
        tasks: TaskScope,
        bar: FilterBar,
        table: AttemptTable,
        rows: TrajectoryTableModel,
        columns: ColumnsView,
        reader: Reader,
    ) -> None:
        super().__init__(bar)
        self._session, self._tasks, self._bar = session, tasks, bar
        self._rows, self._columns, self._reader = rows, columns, reader
        bar.input.names_wanted.connect(self._fetch_names)
        rows.total_changed.connect(bar.set_count)
        table.set_columns(session.settings.current.trajectory_columns)
        table.columns_chosen.connect(
            lambda titles: session.settings.update(trajectory_columns=titles)
        )
        bar.columns.clicked.connect(lambda: table.column_menu().popup(_below(bar.columns)))
        self.export = TrajectoryExport(session, tasks, bar.export, table, rows)

    def follow(self) -> None:
        """Clear the names suggested for completion, which belong to the previous run."""
        self._bar.input.set_names(FilterNames())

    def show_query(self, query: TrajectoryQuery) -> None:
        """Highlight the text that matches the query's filter, in columns, table and reader."""
        found = searches_of(query.filter)
        patterns = {kind: pattern_of_searches(found, kind) for kind in ("prompt", "answer", "call")}
        self._rows.set_searches(found)
        self._reader.set_hits(patterns)
        self._columns.set_hits(patterns)

    def _fetch_names(self) -> None:
        run = self._session.run
        if run.run_id and not run.damaged and self._session.connected:
            work = self._session.client.filter_names(run.run_id)
            self._tasks.run("filter names", work, self._bar.input.set_names)


def _below(button: QWidget) -> QPoint:
    return button.mapToGlobal(button.rect().bottomLeft())


def searches_of(text: str) -> list[TextSearch]:
    """Return the text searches of a filter; none if it is invalid."""
    try:
        return searches(parse_filter(text))
    except Refused:
        return []
