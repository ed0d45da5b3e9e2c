"""Start of a branch: close the sheet on success, show the problem on failure."""

from PySide6.QtCore import QObject, Slot

from engine.protocol.problems import Problem
from engine.protocol.requests.runs import StartRun
from studio.pages.run.branch import BranchSheet
from studio.services.session import Session

JOB = "train"
UNDER_WAY = Problem(
    code="run.starting",
    message="Another run is starting.",
    hint="Try again after that run has started.",
)


class BranchStart(QObject):
    """Controller that passes requests of the branch sheet to the session, one at a time."""

    def __init__(self, session: Session, sheet: BranchSheet) -> None:
        super().__init__(sheet)
        self._session, self._sheet = session, sheet
        self._before: str | None = None
        """Run selected when the branch was requested; None while no request is pending."""
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
        """Handle the end of the start: success, refusal or cancellation."""
        if job != JOB or busy or self._before is None:
            return
        is_started, self._before = self._session.run.run_id != self._before, None
        if is_started and self._problem is None:
            self._sheet.close_started()
            return
        self._sheet.refuse(self._problem)
        if self._problem is not None and not self._sheet.is_open():
            self._session.problem_raised.emit(self._problem)
