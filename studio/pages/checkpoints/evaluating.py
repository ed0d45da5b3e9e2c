"""Evaluations of the open project: started, followed, and what the newest says."""

from collections.abc import Sequence

from PySide6.QtCore import QObject, QTimer, Signal

from engine.protocol.comparison import EvaluationResult
from engine.protocol.records import LIVING, RunSummary
from engine.protocol.requests import StartEvaluation
from studio.session import Session
from studio.tasks import TaskScope

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
        self._again = QTimer(self)
        self._again.setSingleShot(True)
        self._again.setInterval(EVERY_MS)
        self._again.timeout.connect(self.follow)

    @property
    def living(self) -> RunSummary | None:
        """The one that goes on."""
        newest = self.newest
        return newest if newest is not None and newest.state in LIVING else None

    def follow(self) -> None:
        """Look at the newest evaluation; ask for its figures where they are out of date."""
        before, self.newest = self.newest, self._find()
        newest = self.newest
        if newest is None:
            self.result, self._asked = None, ()
        else:
            if before is None or before.id != newest.id:
                self.result = None
            now = (newest.id, newest.state, newest.trajectories)
            if now != self._asked and not self._again.isActive():
                self._asked = now
                self._again.start()
                ask = self._session.client.evaluation(newest.id)
                self._tasks.run("result", ask, self._take, failed=lambda _: None)
        self.changed.emit()

    def start(self, models: Sequence[str]) -> None:
        """Compare these on the validation scenarios, now or after what goes on."""
        request = StartEvaluation(
            project=self._session.project.path, models=list(models), queue=True
        )

        async def work() -> RunSummary:
            await self._session.lend_keys([name for name in models if "/" in name])
            return await self._session.client.start_evaluation(request)

        self._tasks.run("evaluate", work(), self._begun)

    def stop(self) -> None:
        """End it after the attempts under way; what is done stays."""
        if self.living is not None:
            self._session.command("stop_after_step", run_id=self.living.id)

    def _begun(self, run: RunSummary) -> None:
        self._session.take_run(run)
        self.follow()

    def _find(self) -> RunSummary | None:
        runs = self._session.runs.of(self._session.project.path)
        found = [run for run in runs if run.kind == "evaluation" and run.state != "failed"]
        return max(found, key=lambda run: run.started_at, default=None)

    def _take(self, result: EvaluationResult) -> None:
        self.result = result
        self.changed.emit()
