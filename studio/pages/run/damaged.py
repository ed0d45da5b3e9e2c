"""Notice of a damaged run: known facts, the problem, Repair and Delete."""

from datetime import datetime

from PySide6.QtWidgets import QApplication, QWidget

from engine.protocol.problems import Problem
from engine.protocol.records.runs import RunSummary
from studio.actions.actions import Actions
from studio.runtime.tasks import TaskScope
from studio.services.repair import ask_to_remove, repair_run
from studio.services.session import Session
from studio.widgets.cards.error_card import ErrorCard, Remedy
from studio.widgets.layouts import STRETCH, vbox

WIDEST_PX = 860
UNKNOWN = Problem(code="store.damaged", message="The run cannot be read.")
REPAIR = Remedy(
    "run.repair",
    "Repair the run",
    "Keeps everything before the damage; damaged files are kept as a backup.",
    "Repair",
)
REMOVE = Remedy(
    "run.remove",
    "Delete the run",
    "Deletes the run folder with trajectories, labels and checkpoints.",
    "Delete",
    "trash-2",
)


class DamagedRun(QWidget):
    """Notice of a damaged run with Repair and Delete, and a report that can be copied."""

    def __init__(self, session: Session, tasks: TaskScope, actions: Actions) -> None:
        super().__init__()
        self._session, self._tasks, self._actions = session, tasks, actions
        actions.bind(run_repair=self._repair, run_remove=self._remove)
        self._shown: RunSummary | None = None
        self.card: ErrorCard | None = None
        self._column = vbox(STRETCH, parent=self, margins=16)

    def show_run(self, run: RunSummary) -> None:
        """Show the notice for a run; the same run again changes nothing."""
        if run == self._shown:
            return
        self._shown = run
        if self.card is not None:
            self._column.removeWidget(self.card)
            self.card.deleteLater()
        problem = run.problem or UNKNOWN
        words = f"{problem.message} {problem.hint}".strip()
        card = ErrorCard(
            f"{run.name} is damaged", words, (REPAIR, REMOVE), run.path, known_words(run)
        )
        card.setMaximumWidth(WIDEST_PX)
        card.remedy_chosen.connect(self._actions.trigger)
        card.log_requested.connect(self._copy_log)
        card.report_requested.connect(lambda: self._copied(f"{problem}\n\n{problem.detail}"))
        self.card = card
        self._column.insertWidget(0, card)

    def _repair(self) -> None:
        repair_run(self._session, self._session.run.run_id)

    def _remove(self) -> None:
        if (run := self._session.run.summary) is not None:
            ask_to_remove(self._session, [run], self.window())

    def _copy_log(self) -> None:
        """Copy the run's log to the clipboard, if it has one."""

        def show(text: str) -> None:
            if text.strip():
                self._copied(text)
            else:
                self._session.notice.emit("This run has no log.")

        self._tasks.run("log", self._session.client.log(self._session.run.run_id), show)

    def _copied(self, text: str) -> None:
        QApplication.clipboard().setText(text)
        self._session.notice.emit("Copied to the clipboard.")


def known_words(run: RunSummary) -> str:
    """Return start time, number of planned steps and model of a damaged run."""
    started_at = datetime.fromtimestamp(run.started_at).strftime("%d %b %Y, %H:%M")
    steps = f"{run.steps:,} steps planned" if run.steps else ""
    return " · ".join(part for part in (started_at, steps, run.model) if part)
