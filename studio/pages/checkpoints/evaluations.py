"""Evaluations of the open project: started, followed, and what the newest says."""

import time
import uuid
from collections.abc import Sequence

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from engine.protocol.records.comparison import EvaluationResult
from engine.protocol.records.runs import ACTIVE_STATES, RunSummary
from engine.protocol.requests.runs import StartEvaluation
from studio.runtime.tasks import TaskScope
from studio.services.session import Session

EVERY_MS = 700


class EvaluationDesk(QObject):
    """`changed` when there is something new to show: `living`, `result`."""

    changed = Signal()

    def __init__(self, session: Session, tasks: TaskScope, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session, self._tasks = session, tasks
        self.newest: RunSummary | None = None
        self.result: EvaluationResult | None = None
        self._asked: tuple[object, ...] = ()
        self._told = ""
        """Id of the failed one that was spoken of."""
        self._since = time.time()
        self._again = QTimer(self)
        self._again.setSingleShot(True)
        self._again.setInterval(EVERY_MS)
        self._again.timeout.connect(self.follow)
        session.runs_changed.connect(self.follow)
        session.feed.run_changed.connect(self._heard)

    @property
    def active(self) -> RunSummary | None:
        """The newest evaluation, while it is active."""
        newest = self.newest
        return newest if newest is not None and newest.state in ACTIVE_STATES else None

    @Slot()
    def follow(self) -> None:
        """Look at the newest evaluation; ask for its figures where they are out of date."""
        newest = self._find()
        now = (newest.id, newest.state, newest.trajectories) if newest else ()
        if now == self._asked or self._again.isActive():
            return
        if newest is None or self.newest is None or newest.id != self.newest.id:
            self.result = None
        self.newest, self._asked = newest, now
        if newest is not None:
            self._again.start()
            self._tasks.run("result", self._session.client.evaluation(newest.id), self._take)
        self.changed.emit()

    @Slot(str)
    def _heard(self, run_id: str) -> None:
        if self.newest is not None and run_id == self.newest.id:
            self.follow()

    def start(self, models: Sequence[str], host: str = "") -> None:
        """Compare these on the validation scenarios, now or after what goes on; on a server, or
        here."""
        request = StartEvaluation(
            project=self._session.project.path,
            models=list(models),
            queue=True,
            host=host,
            key=uuid.uuid4().hex,
        )

        async def work() -> RunSummary:
            await self._session.lend_keys([name for name in models if "/" in name])
            if host:
                hosts = self._session.hosts
                return await hosts.begin(host, lambda client: client.start_evaluation(request))
            return await self._session.client.start_evaluation(request)

        self._tasks.run("evaluate", work(), self._begun)

    def stop(self) -> None:
        """End it after the attempts under way; what is done stays."""
        if self.active is not None:
            self._session.command("stop_after_step", run_id=self.active.id)

    def _begun(self, run: RunSummary) -> None:
        self._session.take_run(run)
        self.follow()

    def _find(self) -> RunSummary | None:
        """The newest that has not failed; of a newer one that has, the reason is said once."""
        runs = self._session.runs.of(self._session.project.path)
        found = sorted(
            (run for run in runs if run.kind == "evaluation"), key=lambda run: -run.started_at
        )
        if found and found[0].state == "failed" and found[0].id != self._told:
            self._told = found[0].id
            if found[0].problem and found[0].changed_at > self._since:
                self._session.problem_raised.emit(found[0].problem)
        return next((run for run in found if run.state != "failed"), None)

    def _take(self, result: EvaluationResult) -> None:
        self.result = result
        self.changed.emit()
