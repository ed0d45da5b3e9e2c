"""Right column of the Run page: dismissed findings stay dismissed within their run."""

from PySide6.QtWidgets import QApplication

from engine.protocol.records.runs import Alert, Finding
from studio.pages.run.side_column import SideColumn
from studio.store.runs.state import RunState
from studio.theme.theme import Theme


def test_dismissed_finding_is_shown_again_in_next_run(qapp: QApplication) -> None:
    Theme.install(qapp, mode="dark")
    side = SideColumn()
    finding = Finding(code="flat", title="No group differs.", words="All rewards are equal.")
    first, second = RunState("a", findings=[finding]), RunState("b", findings=[finding])
    side.show_run(first)
    side._diagnoses[0].dismissed.emit()
    side.show_run(first)
    assert not side._diagnoses
    side.show_run(second)
    (card,) = side._diagnoses
    assert "No group differs" in card.accessibleName()
    side.show_run(first)
    assert not side._diagnoses
    side.deleteLater()


def test_alert_is_shown_again_after_it_has_ended(qapp: QApplication) -> None:
    Theme.install(qapp, mode="dark")
    side = SideColumn()
    alert = Alert(condition="unscored > 10 %", words="Unscored trajectories: 12.5 % in step 2.")
    state = RunState("a", alerts=[alert])
    side.show_run(state)
    (card,) = side._diagnoses
    assert "unscored > 10 %" in card.accessibleName()
    assert card._show.text() == "Show them"
    card.dismissed.emit()
    side.show_run(state)
    assert not side._diagnoses
    state.alerts = []
    side.show_run(state)
    state.alerts = [alert]
    side.show_run(state)
    assert len(side._diagnoses) == 1
    side.deleteLater()
