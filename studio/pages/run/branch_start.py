"""What becomes of a branch that the sheet asked for: begun, it closes; refused, it says why."""

from PySide6.QtCore import QObject, Slot

from engine.protocol.problems import Problem
from engine.protocol.requests.runs import StartRun
from studio.pages.run.branch import BranchSheet
from studio.services.session import Session

JOB = "train"
UNDER_WAY = Problem(
    code="run.starting",
    message="Another run is starting.",
    hint="Try again after it has started.",
)


class Branching(QObject):
    """Between the sheet and the session, whose start is one job for all."""

    def __init__(self, session: Session, sheet: BranchSheet) -> None:
        super().__init__(sheet)
        self._session, self._sheet = session, sheet
        self._before: str | None = None
        """The run that was looked at when it was asked for; None while nothing is."""
        self._problem: Problem | None = None
        sheet.ordered.connect(self._begin)
        session.tasks.busy_changed.connect(self._busy_changed)

    @Slot(object)
    def _begin(self, request: StartRun) -> None:
        if self._session.tasks.busy(JOB):
            self._sheet.refuse(UNDER_WAY)
            return
        self._before, self._problem = self._session.run.run_id, None
        self._session.start_run(request, failed=self._refused)

    def _refused(self, problem: Problem) -> None:
        self._problem = problem

    @Slot(str, bool)
    def _busy_changed(self, job: str, busy: bool) -> None:
        """Ended: the new run is in view, or it was refused, or nobody waits for it any longer."""
        if job != JOB or busy or self._before is None:
            return
        begun, self._before = self._session.run.run_id != self._before, None
        if begun and self._problem is None:
            self._sheet.begun()
            return
        self._sheet.refuse(self._problem)
        if self._problem is not None and not self._sheet.is_open():
            self._session.problem_raised.emit(self._problem)
