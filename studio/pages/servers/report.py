"""Survey report of a server: one row per check, and the requirements of an installation."""

from PySide6.QtWidgets import QWidget

from engine.protocol.requests.remote import HostReport
from studio.store.servers.server_rows import report_facts
from studio.widgets.cards.check_line import CheckNote
from studio.widgets.cards.key_values import KeyValues
from studio.widgets.layouts import add, vbox
from studio.widgets.text.text import Text


class ReportView(QWidget):
    """View of a survey report: `show_report(report)`."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shown: HostReport | None = None
        self._facts = KeyValues(1)
        self._notes: list[CheckNote] = []
        self._column = vbox(
            Text("Hardware and software", "label", 600), 2, self._facts, 8, parent=self, spacing=2
        )

    def show_report(self, report: HostReport) -> None:
        """Show a report; the same report again changes nothing."""
        if report == self._shown:
            return
        self._shown = report
        self._facts.set_values(report_facts(report))
        self._facts.setFixedHeight(self._facts.sizeHint().height())
        for note in self._notes:
            self._column.removeWidget(note)
            note.deleteLater()
        self._notes = [CheckNote(c.state, c.name, c.words, c.hint) for c in report.checks]
        add(self._column, *self._notes)
