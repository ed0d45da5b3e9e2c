"""Add server wizard, step by step with mouse and keyboard."""

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from engine.protocol.problems import Problem
from engine.protocol.requests.remote import HostSpec
from studio.app import Studio
from studio.pages.servers.address import name_for
from studio.store.servers.server_rows import step_of
from studio.widgets.controls.buttons import Button
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.servers import NOT_INSTALLED, REPORT, UNREACHABLE, view
from tests.studio.screenshots.pages import open_project, studio_on


def click(widget: QWidget) -> None:
    QTest.mouseClick(widget, Qt.MouseButton.LeftButton)


def press_button(widget: Button, words: str) -> None:
    """Press a button by keyboard; it must have the expected text."""
    assert widget.words() == words
    assert widget.isEnabled()
    widget.setFocus()
    QTest.keyClick(widget, Qt.Key.Key_Return)


def open_wizard(studio: Studio) -> Any:
    studio.actions.trigger("servers.add")
    return studio.servers.wizard


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("mara@box.lab.example:2222", "box"),
        ("box", "box"),
        ("root@10.0.0.7:22", "10.0.0.7"),
        ("gpu_1.lab", "gpu_1"),
        ("", ""),
    ],
)
def test_name_is_derived_from_address(address: str, name: str) -> None:
    assert name_for(address) == name
    if name:
        HostSpec(name=name, address=address)


def test_every_server_state_has_a_step() -> None:
    assert step_of(None) == step_of(view()) == step_of(view(state="asking")) == "waiting"
    assert step_of(view(state="stopped", problem=NOT_INSTALLED, report=REPORT)) == "report"
    assert step_of(view(state="stopped", problem=NOT_INSTALLED)) == "failed"
    assert step_of(view(state="reconnecting", problem=UNREACHABLE)) == "failed"
    assert step_of(view(state="installing")) == "installing"
    assert step_of(view(state="connected")) == "ready"


def test_server_is_added_and_selected_by_keyboard(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.add_project("inbox-scout")
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            wizard = open_wizard(studio)
            form = wizard._form
            await until(lambda: form.address.choices() == ["gate", "lab-3"])
            QTest.keyClicks(form.address.line, "mara@box.lab")
            assert form.name.value() == "box"
            QTest.keyClick(form.address.line, Qt.Key.Key_Return)
            await until(lambda: wizard._shown == "waiting")
            await until(lambda: wizard._shown == "report")
            assert engine.servers.views["box"].spec.address == "mara@box.lab"
            assert wizard._main._price == "4.2 GB"
            press_button(wizard._main, "Install")
            await until(lambda: "of 526 MB" in wizard._live._words.words())
            await until(lambda: wizard._shown == "ready")
            toggle = wizard._ready.chosen
            toggle.setFocus()
            QTest.keyClick(toggle, Qt.Key.Key_Return)
            path = str(engine.workspace / "inbox-scout")
            assert studio.settings.current.trains_on == {path: "box"}
            press_button(wizard._main, "Done")
            assert not wizard.is_open()
        assert engine.servers.acted == [("box", "connect"), ("box", "install")]

    run(job())


def test_invalid_entries_are_reported_and_nothing_is_sent(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.servers.put(view())
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.hosts.all)
            wizard = open_wizard(studio)
            click(wizard._main)
            rows = wizard._form._rows
            assert "user@" in rows["address"].problem()
            assert rows["name"].problem()
            wizard._form.address.set_value("mara@box")
            wizard._form.name.set_value("box")
            click(wizard._main)
            assert rows["name"].problem() == "A server named box already exists."
            QTest.keyClick(wizard, Qt.Key.Key_Escape)
            assert not wizard.is_open()
        assert not engine.servers.acted

    run(job())


def test_failure_is_shown_and_can_be_retried(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.servers.meets["box"] = UNREACHABLE
        async with studio_on(engine, qapp, tmp_path) as studio:
            wizard = open_wizard(studio)
            wizard._form.address.set_value("box")
            wizard._form.name.set_value("box")
            click(wizard._main)
            await until(lambda: wizard._shown == "failed")
            assert wizard._live._words.words() == UNREACHABLE.message
            assert wizard._live._hint.words() == UNREACHABLE.hint
            del engine.servers.meets["box"]
            click(wizard._main)
            await until(lambda: wizard._shown == "report")
            engine.servers.meets["box"] = Problem(code="host.disk_full", message="It is full.")
            click(wizard._main)
            await until(lambda: wizard._shown == "failed")
            assert wizard._live._words.words() == "It is full."
            del engine.servers.meets["box"]
            press_button(wizard._main, "Retry")
            await until(lambda: wizard._shown == "ready")
        assert [verb for _, verb in engine.servers.acted] == [
            "connect", "connect", "install", "install"
        ]  # fmt: skip

    run(job())


def test_cancelled_installation_can_be_resumed(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            wizard = open_wizard(studio)
            wizard._form.address.set_value("box")
            wizard._form.name.set_value("box")
            click(wizard._main)
            await until(lambda: wizard._shown == "report")
            click(wizard._later)
            assert not wizard.is_open()
            studio.window.show_page("settings")
            settings: Any = studio.pages["settings"]
            row = settings.servers.rows["box"]
            install = next(b for b in row.findChildren(Button) if b.words() == "Install")
            click(install)
            await until(lambda: wizard.is_open() and wizard._shown == "report")
            engine.servers.pace_s = 0.3
            click(wizard._main)
            await until(lambda: engine.servers.views["box"].state == "installing")
            click(wizard._main)
            await until(lambda: ("box", "disconnect") in engine.servers.acted)
            assert wizard._shown == "address"
            assert wizard._form.address.value() == "box", "the address is kept for another try"
            engine.servers.pace_s = 0.05
            click(wizard._main)
            await until(lambda: wizard._shown == "report")

    run(job())


def test_unsuitable_server_shows_reason(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        tools = REPORT.checks[0].model_copy(
            update={"state": "bad", "name": "Tools", "words": "It has no tar."}
        )
        report = REPORT.model_copy(update={"checks": [tools]})
        engine.servers.put(view(state="stopped", problem=NOT_INSTALLED, report=report))
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.hosts.all)
            studio.servers.wizard.go_on("box")
            wizard: Any = studio.servers.wizard
            await until(lambda: wizard._shown == "report")
            assert not wizard._main.isEnabled()
            assert "It has no tar." in wizard._note.words()
            click(wizard._again)
            await until(lambda: ("box", "connect") in engine.servers.acted)
            await until(lambda: wizard._main.isEnabled())

    run(job())


@pytest.mark.parametrize("by", ["button", "escape", "while it is requested"])
def test_cancelled_sheet_ends_its_connection(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, by: str
) -> None:
    async def job() -> None:
        engine.servers.pace_s = 30.0
        if by == "while it is requested":
            engine.held.add("POST /hosts")
        async with studio_on(engine, qapp, tmp_path) as studio:
            wizard = open_wizard(studio)
            wizard._form.address.set_value("box")
            wizard._form.name.set_value("box")
            click(wizard._main)
            await until(lambda: wizard._shown == "waiting")
            if by != "while it is requested":
                await until(lambda: studio.session.hosts.words("box").text.startswith("connecting"))
            if by == "button":
                click(wizard._main)
                assert wizard._shown == "address"
            else:
                QTest.keyClick(wizard, Qt.Key.Key_Escape)
                assert not wizard.is_open()
                assert studio.notifier.words() == "Connecting to box was cancelled."
            engine.held.clear()
            await until(lambda: engine.servers.acted[-1:] == [("box", "disconnect")])
            await until(lambda: engine.servers.views["box"].state == "away")
        assert engine.servers.acted == [("box", "connect"), ("box", "disconnect")]

    run(job())


def test_closing_the_sheet_of_a_listed_server_leaves_its_connection(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.servers.put(view(state="reconnecting", problem=UNREACHABLE))
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.hosts.all)
            name = studio.session.hosts.all[0].spec.name
            studio.servers.wizard.go_on(name)
            QTest.keyClick(studio.servers.wizard, Qt.Key.Key_Escape)
            assert not studio.servers.wizard.is_open()
        assert not engine.servers.acted

    run(job())
