"""Evaluations of the open project: start, follow and show the newest result."""

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


class EvaluationController(QObject):
    """Controller of evaluations; emits `changed` when `newest` or `result` change."""

    changed = Signal()

    def __init__(self, session: Session, tasks: TaskScope, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session, self._tasks = session, tasks
        self.newest: RunSummary | None = None
        self.result: EvaluationResult | None = None
        self._requested: tuple[object, ...] = ()
        self._reported_id = ""
        """Id of the failed evaluation that was reported last."""
        self._since = time.time()
        self._again = QTimer(self)
        self._again.setSingleShot(True)
        self._again.setInterval(EVERY_MS)
        self._again.timeout.connect(self.follow)
        session.runs_changed.connect(self.follow)
        session.feed.run_changed.connect(self._run_changed)

    @property
    def active(self) -> RunSummary | None:
        """Return the newest evaluation if it is queued or running; otherwise None."""
        newest = self.newest
        return newest if newest is not None and newest.state in ACTIVE_STATES else None

    @Slot()
    def follow(self) -> None:
        """Follow the newest evaluation and request its results when they are out of date."""
        newest = self._find()
        now = (newest.id, newest.state, newest.trajectories) if newest else ()
        if now == self._requested or self._again.isActive():
            return
        if newest is None or self.newest is None or newest.id != self.newest.id:
            self.result = None
        self.newest, self._requested = newest, now
        if newest is not None:
            self._again.start()
            self._tasks.run("result", self._session.client.evaluation(newest.id), self._take)
        self.changed.emit()

    @Slot(str)
    def _run_changed(self, run_id: str) -> None:
        if self.newest is not None and run_id == self.newest.id:
            self.follow()

    def start(self, models: Sequence[str], host: str = "") -> None:
        """Start an evaluation of `models` (names) on the validation scenarios, queued after active
        runs. `host` names a remote server; empty means this machine."""
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

        self._tasks.run("evaluate", work(), self._show_run)

    def stop(self) -> None:
        """Stop the evaluation after its active rollouts; completed ones are kept."""
        if self.active is not None:
            self._session.command("stop_after_step", run_id=self.active.id)

    def _show_run(self, run: RunSummary) -> None:
        self._session.take_run(run)
        self.follow()

    def _find(self) -> RunSummary | None:
        """Return the newest evaluation that has not failed; report a newer failure once."""
        runs = self._session.runs.of(self._session.project.path)
        found = sorted(
            (run for run in runs if run.kind == "evaluation"), key=lambda run: -run.started_at
        )
        if found and found[0].state == "failed" and found[0].id != self._reported_id:
            self._reported_id = found[0].id
            if found[0].problem and found[0].changed_at > self._since:
                self._session.problem_raised.emit(found[0].problem)
        return next((run for run in found if run.state != "failed"), None)

    def _take(self, result: EvaluationResult) -> None:
        self.result = result
        self.changed.emit()
