"""Server list in Settings and the sheet of a server."""

from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.requests.remote import FarEngine, HostView
from studio.services.notifications import Question
from studio.store.servers.server_rows import all_offers, cards_words, removal_words, row_of
from studio.widgets.controls.buttons import Button
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.servers import (
    BUILD,
    CARD,
    KEY_CHANGED,
    NOT_INSTALLED,
    OTHER_HOME,
    REPORT,
    UNREACHABLE,
    view,
)
from tests.studio.screenshots.pages import fill_workspace, studio_on

RUN = "01JD5MAMBERKESTREL00000000"


def offered_actions(shown: HostView) -> list[list[str]]:
    return [[offer.words for offer in line] for line in all_offers(shown)]


def run_button(sheet: Any) -> Any:
    buttons = sheet.findChildren(Button)
    shown = (b for b in buttons if "amber-kestrel" in b.words() and b.isVisible())
    return next(shown, None)


def test_row_offers_next_action() -> None:
    def words(shown: HostView) -> list[str]:
        return [offer.words for offer in row_of(shown, 0.0).offers]

    assert words(view()) == ["Connect"]
    assert words(view(state="installing")) == ["Cancel"]
    assert words(view(state="connected")) == []
    assert words(view(state="connected", outdated=True)) == ["Update"]
    assert words(view(state="reconnecting", problem=UNREACHABLE)) == ["Retry now"]
    assert words(view(state="stopped", problem=NOT_INSTALLED)) == ["Install"]
    assert words(view(state="stopped", problem=OTHER_HOME)) == ["Take over"]
    assert "nothing was sent" in row_of(view(state="stopped", problem=KEY_CHANGED), 0.0).problem


def test_sheet_offers_all_actions() -> None:
    engines = [FarEngine(id=BUILD, current=True), FarEngine(id="0.0.9", previous=True)]
    report = REPORT.model_copy(update={"engines": engines, "cards": [CARD, CARD]})
    shown = view(state="connected", report=report)
    assert offered_actions(shown) == [
        ["Disconnect"],
        ["Roll back", "Stop engine"],
        ["Remove from this server", "Remove entry"],
    ]
    assert offered_actions(view(state="installing"))[2] == []
    silent = UNREACHABLE.model_copy(update={"code": "host.engine_silent"})
    assert offered_actions(view(state="reconnecting", problem=silent))[1] == ["Repair"]
    assert cards_words(report) == "2 × NVIDIA H200 (150 GB)"
    assert "about 9.5 GB" in removal_words(shown)


def test_sheet_opens_run_and_confirms_removal(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        fill_workspace(engine, 2)
        engine.servers.put(view(state="connected", runs=[engine.summaries[RUN]]))
        async with studio_on(engine, qapp, tmp_path) as studio:
            studio.actions.trigger("servers.open")
            settings: Any = studio.pages["settings"]
            await until(lambda: "box" in settings.servers.rows)
            row = settings.servers.rows["box"]
            row._open.setFocus()
            QTest.keyClick(row._open, Qt.Key.Key_Return)
            sheet: Any = studio.servers.sheet
            assert sheet.is_open()
            await until(lambda: (one := run_button(sheet)) and one.isEnabled())
            QTest.mouseClick(run_button(sheet), Qt.MouseButton.LeftButton)
            await until(lambda: studio.session.run.run_id == RUN)
            await until(lambda: studio.window.page == "run")
            assert not sheet.is_open()
            sheet.show_host("box")
            remove = next(b for b in sheet.findChildren(Button) if b.words().startswith("Remove"))
            QTest.mouseClick(remove, Qt.MouseButton.LeftButton)
            await until(lambda: isinstance(QApplication.activeModalWidget(), Question))
            question = QApplication.activeModalWidget()
            assert question is not None
            sure = next(b for b in question.findChildren(Button) if b.words() == "Remove Atelier")
            QTest.mouseClick(sure, Qt.MouseButton.LeftButton)
            await until(lambda: ("box", "remove") in engine.servers.acted)
            await until(lambda: engine.servers.views["box"].state == "away")
            engine.servers.change("box", state="stopped", problem=OTHER_HOME)
            await until(lambda: [b for b in row.findChildren(Button) if b.words() == "Take over"])

    run(job())


def test_removed_server_is_removed_from_training_locations(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.servers.put(view())
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.hosts.all)
            studio.settings.update(trains_on={"/p/a": "box", "/p/b": "lab"})
            studio.session.hosts.act("box", "forget")
            await until(lambda: not studio.session.hosts.all)
            await until(lambda: studio.settings.current.trains_on == {"/p/b": "lab"})

    run(job())
