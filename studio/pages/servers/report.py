"""What a server has, check by check; before an engine is installed there, what that would take."""

from PySide6.QtWidgets import QVBoxLayout, QWidget

from engine.protocol.requests.remote import HostReport
from studio.store.servers.server_rows import report_facts
from studio.widgets.cards.check_line import CheckNote
from studio.widgets.cards.key_values import KeyValues
from studio.widgets.text.text import Text


class ReportView(QWidget):
    """`show_report(report)`."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shown: HostReport | None = None
        self._facts = KeyValues(1)
        self._notes: list[CheckNote] = []
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(2)
        self._column.addWidget(Text("Hardware and software", "label", 600))
        self._column.addSpacing(2)
        self._column.addWidget(self._facts)
        self._column.addSpacing(8)

    def show_report(self, report: HostReport) -> None:
        """The same one again changes nothing on screen."""
        if report == self._shown:
            return
        self._shown = report
        self._facts.set_values(report_facts(report))
        self._facts.setFixedHeight(self._facts.sizeHint().height())
        for note in self._notes:
            self._column.removeWidget(note)
            note.deleteLater()
        self._notes = [CheckNote(c.state, c.name, c.words, c.hint) for c in report.checks]
        for note in self._notes:
            self._column.addWidget(note)
