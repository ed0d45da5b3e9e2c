"""Controller of the evidence: beside the reader, or a sheet in narrow windows and other views."""

from functools import partial

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.requests.runs import Siblings
from studio.pages.trajectories.groups.columns import ColumnsView
from studio.pages.trajectories.reader.evidence import Evidence, EvidencePanel
from studio.pages.trajectories.reader.reader import Reader
from studio.pages.trajectories.reader.transcript_rows import EVEN, Weights, largest_advantage
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.widgets.cards.sheet import Sheet


class EvidenceController(QObject):
    """Evidence of a page; its sheet covers `host`. Emits `reader_wanted` to open the reader."""

    reader_wanted = Signal()

    def __init__(
        self,
        session: Session,
        tasks: TaskScope,
        columns: ColumnsView,
        reader: Reader,
        host: QWidget,
    ) -> None:
        super().__init__(host)
        self._session, self._tasks = session, tasks
        self._columns, self._reader = columns, reader
        self._siblings: Siblings | None = None
        self._weights, self._run_id = EVEN, ""
        self.sheet, self.panel = Sheet("Evidence", host), EvidencePanel()
        self.sheet.body.addWidget(self.panel, 1)
        for panel in (reader.evidence, self.panel):
            panel.call_wanted.connect(partial(self._ask, panel))
        self.panel.passage_wanted.connect(self._show_passage)
        self.panel.row_wanted.connect(self._show_row)

    def show_group(self, siblings: Siblings | None, weights: Weights, run_id: str = "") -> None:
        """Set the group whose verdicts, rewards and labels the sheet shows; None closes the sheet.
        `weights`: reward part → weight; `run_id`: run of the group, for loading judge calls."""
        self._siblings, self._weights, self._run_id = siblings, weights, run_id
        if siblings is None:
            self.close()

    def evidence(self) -> Evidence | None:
        """Return the evidence of the focused trajectory; None without a group."""
        record, siblings = self._columns.record(), self._siblings
        if record is None or siblings is None:
            return None
        numbers = {one.id: one.index + 1 for one in siblings.trajectories}
        own = [one for one in siblings.verdicts if one.trajectory_id == record.id]
        largest = largest_advantage(siblings.group)
        return Evidence(record, own, siblings.labels, numbers, self._weights, largest)

    def refresh(self, reading: bool) -> None:
        """Update the evidence of the focused trajectory in the sheet, if open, and with `reading`
        (the page shows the reader) also in the reader."""
        evidence = self.evidence()
        if evidence is not None and reading:
            self._reader.show_evidence(evidence)
        if evidence is not None and self.sheet.is_open():
            self._show(evidence)

    def toggle(self, reading: bool) -> None:
        """Open or close the evidence sheet. With `reading` (the page shows the reader) and a
        visible evidence panel in the reader, select the first tab of that panel instead."""
        evidence = self.evidence()
        if reading and self._reader.evidence.isVisible():
            self._reader.evidence.show_tab(0)
        elif not self.close() and evidence is not None:
            self.sheet.open()
            self._show(evidence)
            self._columns.setFocus(
                Qt.FocusReason.OtherFocusReason
            )  # arrow keys still change the trajectory

    def close(self) -> bool:
        """Close the evidence sheet; returns False if it was not open."""
        was_open = self.sheet.is_open()
        if was_open:
            self.sheet.close_sheet()
        return was_open

    def _show(self, evidence: Evidence) -> None:
        self.sheet.set_title(f"Trajectory {evidence.record.index + 1}")
        self.panel.show_evidence(evidence)

    def _show_passage(self, quote: str) -> None:
        self.reader_wanted.emit()
        self.close()  # the sheet would cover the passage or duplicate the panel
        self._reader.show_passage(quote)

    def _show_row(self, row: int) -> None:
        self.reader_wanted.emit()
        self.close()
        self._reader.transcript.focus_row(row)

    def _ask(self, panel: EvidencePanel, key: str) -> None:
        ask = self._session.client.call(self._run_id, key)
        self._tasks.run("call", ask, panel.show_call)
