"""Lists of the Trajectories page: which run and query they show, and whether they are current."""

from PySide6.QtCore import QObject

from engine.protocol.requests.runs import TrajectoryQuery
from studio.models.groups import GroupListModel
from studio.models.run import RunModel
from studio.models.trajectories import TrajectoryTableModel
from studio.pages.trajectories.scenario_table import ScenarioTable
from studio.pages.trajectories.views import total_of
from studio.runtime.tasks import TaskScope
from studio.services.session import Session


class RunLists(QObject):
    """Groups, trajectories and scenarios of one run."""

    def __init__(self, session: Session, tasks: TaskScope, parent: QObject) -> None:
        super().__init__(parent)
        self._session = session
        self.groups = GroupListModel(tasks, self)
        self.rows = TrajectoryTableModel(tasks, self)
        self.scenarios = ScenarioTable(session, tasks)
        self._run_id: str | None = None
        """Run that the lists show; None: they have to be loaded."""
        self._seen: tuple[int, int, object] = (-1, -1, None)
        """Number of trajectories, last completed step and labels at the last reload."""

    @property
    def has_run(self) -> bool:
        """Return whether the lists show a run."""
        return bool(self._run_id)

    def forget(self) -> None:
        """Forget which run is shown, so that the next `follow` reloads the lists even for the same
        run."""
        self._run_id = None

    def follow(self, run_id: str) -> bool:
        """Show the lists of a run (empty: none) without a filter; returns False if they show it
        already."""
        if run_id == self._run_id:
            return False
        self._run_id, self._seen = run_id, (-1, -1, None)
        session = self._session  # a restart of the engine replaces its client
        for model in (self.groups, self.rows):
            model.set_query(TrajectoryQuery())
        groups = (lambda query: session.client.groups(run_id, query)) if run_id else None
        rows = (lambda query: session.client.trajectories(run_id, query)) if run_id else None
        self.groups.set_source(groups)
        self.rows.set_source(rows)
        self.scenarios.follow(run_id)
        return True

    def set_query(self, query: TrajectoryQuery) -> None:
        """Filter groups and trajectories by a query; the table of trajectories keeps its own sort
        order."""
        self.groups.set_query(query)
        order = {"sort": self.rows.query.sort, "descending": self.rows.query.descending}
        self.rows.set_query(query.model_copy(update=order))

    def catch_up(self, run: RunModel) -> bool:
        """Reload the lists after new trajectories, steps or labels of the run; returns whether
        labels have changed since the last reload."""
        state, count = run.state, run.summary.trajectories if run.summary else 0
        self.groups.set_labelled(state.labelled)
        relabelled = total_of(state.relabelled.values())
        labels = (len(state.labelled), len(state.relabelled), relabelled)
        seen = (count, state.done, labels)
        if seen == self._seen:
            return False
        labels_changed = self._seen[-1] not in (labels, None)
        self._seen = seen
        self.refresh()
        return labels_changed

    def refresh(self) -> None:
        for rows in (self.groups, self.rows, self.scenarios):
            rows.refresh()
