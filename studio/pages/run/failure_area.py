"""Area of the Run page for a failed run: its error card, whose buttons act on project and run."""

from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QApplication, QWidget

from engine.protocol.requests.runs import EditProject
from studio.actions.actions import Actions
from studio.models.run import RunModel
from studio.pages.run.failure import failure_card, onwards, ways
from studio.services.editor import open_place, place_of
from studio.services.session import Session
from studio.widgets.cards.error_card import ErrorCard
from studio.widgets.layouts import vbox


class FailureArea(QWidget):
    """Error card of a failed run, hidden otherwise; emits `log_requested`."""

    log_requested = Signal()

    def __init__(self, session: Session, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session, self._actions, self._run = session, actions, session.run
        self._column = vbox(parent=self)
        self._card: ErrorCard | None = None
        self.hide()

    def show_run(self, run: RunModel) -> None:
        """Show the failure of a run, if it has failed."""
        if self._card is not None:
            self._column.removeWidget(self._card)
            self._card.deleteLater()
            self._card = None
        problem = run.state.problem if run.state.status == "failed" else None
        self.setVisible(problem is not None)
        if problem is None:
            return
        place = place_of(problem, run.summary.project_path if run.summary else "")
        card = self._card = failure_card(problem, run.state, str(place or ""))
        card.remedy_chosen.connect(self._remedy)
        card.log_requested.connect(self.log_requested)
        card.report_requested.connect(self._copy_report)
        if place is not None:
            card.place_requested.connect(partial(open_place, place))
        self._column.addWidget(card)

    def _remedy(self, key: str) -> None:
        """Apply a remedy by key: trigger an action, or change the project and start a run."""
        summary, state = self._run.summary, self._run.state
        found = ways(state.problem, state) if state.problem else []
        values = next((way.values for way in found if way.remedy.key == key), {})
        if not values or summary is None:
            self._actions.trigger(key)
            return
        request = onwards(summary, state, values)
        self._session.edit(
            EditProject(values=values),
            lambda _: self._session.start_run(request),
            self._session.problem_raised.emit,
        )

    def _copy_report(self) -> None:
        problem = self._run.state.problem
        if problem is not None:
            QApplication.clipboard().setText(f"{problem}\n\n{problem.detail}")
            self._session.notice.emit("The report was copied to the clipboard.")
