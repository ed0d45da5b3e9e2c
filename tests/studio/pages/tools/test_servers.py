"""MCP servers on the Setup page: adding, checking, selecting tools, removing."""

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.config.mcp import McpServer, ServerView
from engine.protocol.problems import Problem
from studio.store.projects.mcp import chip_of, entered_values
from studio.widgets.controls.buttons import IconButton
from tests.studio.conftest import Run, until
from tests.studio.fakes.drafts import GONE, LIBRARY
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.environments import AGENT, at_home
from tests.studio.pages.tools.test_packages import FILE, setup_of
from tests.studio.screenshots.pages import studio_on

SERVER = McpServer(command="python", args=("s.py",))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "not checked"),
        ({"is_listed": True, "tools": LIBRARY}, "4 tools"),
        ({"is_listed": True, "problem": GONE}, "problem"),
    ],
)
def test_chip_of_every_server_state(changes: dict[str, Any], words: str) -> None:
    assert chip_of(ServerView(name="x", server=SERVER, **changes))[0] == words
    few = SERVER.model_copy(update={"tools": ("find_book",)})
    view = ServerView(name="x", server=few, is_listed=True, tools=LIBRARY)
    assert chip_of(view)[0] == "1 of 4 tools"


def test_shell_line_is_split_into_command_and_arguments() -> None:
    values = entered_values('npx -y "a b"', "", 5)
    assert values == {"command": "npx", "args": ["-y", "a b"], "timeout_s": 5}
    assert entered_values("x", "https://h/mcp", 5) == {"url": "https://h/mcp", "timeout_s": 5}
    with pytest.raises(ValueError, match="quotation"):
        entered_values('npx "a', "", 5)


def test_server_is_added_checked_selected_and_removed(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def job() -> None:
        path = str(engine.workspace / "inbox-scout")
        engine.environments.change(AGENT, **at_home("agent"))
        engine.authoring.add_server(path)
        async with studio_on(engine, qapp, tmp_path) as studio:
            page = await setup_of(studio, engine, FILE)
            card = page._tools.servers
            await until(card.isVisible)
            assert not card.offered, "no server is contacted without a request"

            QTest.keyClick(card._add, Qt.Key.Key_Return)
            sheet = card.sheet
            sheet.name.set_value("library")
            sheet._add.click()
            assert "already" in sheet._rows["name"].problem()
            assert sheet._rows["command"].problem() == "Enter the command that starts the server."
            sheet.name.set_value("gone")
            sheet.command.set_value('no-such-program "x y"')
            QTest.keyClick(sheet.command.editor, Qt.Key.Key_Return)
            await until(lambda: len(card.offered) == len(LIBRARY))
            assert engine.authoring.servers[path]["gone"].args == ("x y",)
            assert not sheet.is_open()
            row = card._rows["gone"]
            assert GONE.message in row._problem.words()

            toggles = card._rows["library"].tools
            assert all(toggle.isChecked() for toggle in toggles.values())
            await until(lambda: all(toggle._place.value == 1 for toggle in toggles.values()))
            for name in ("lend_book", "give_back"):
                toggles[name].setFocus()
                QTest.keyClick(toggles[name], Qt.Key.Key_Space)
            await until(
                lambda: (
                    engine.authoring.servers[path]["library"].tools
                    == ("find_book", "opening_hours")
                )
            )
            assert len(card.offered) == 2
            QTest.keyClick(toggles["lend_book"], Qt.Key.Key_Space)
            QTest.keyClick(toggles["give_back"], Qt.Key.Key_Space)
            await until(lambda: engine.authoring.servers[path]["library"].tools is None)

            remove = row.findChild(IconButton)
            QTest.keyClick(remove, Qt.Key.Key_Return)
            await until(lambda: list(card._rows) == ["library"])
            engine.authoring.problem = Problem(code="mcp.slow", message="They did not say.")
            card.look()
            await until(lambda: card._problem.isVisible())
            assert len(card.offered) == len(LIBRARY), "known tools stay after a failure"

    run(job())


def test_late_response_of_another_project_is_ignored(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.environments.change(AGENT, **at_home("agent"))
        first, second = (str(engine.workspace / name) for name in ("inbox-scout", "second"))
        engine.authoring.add_server(first)
        engine.authoring.add_server(second, "archive")
        async with studio_on(engine, qapp, tmp_path) as studio:
            page = await setup_of(studio, engine, FILE)
            card = page._tools.servers
            await until(lambda: list(card._rows) == ["library"])
            engine.held.add("POST /project/servers")
            card.look()
            card.add()
            await until(lambda: engine.authoring.looks == 1)
            studio.session.show_project(engine.add_project("second"))
            await until(lambda: list(card._rows) == ["archive"])
            assert not page.tasks.busy("look")
            assert not card._look.is_busy()
            assert not card.sheet.is_open(), "the sheet belonged to the other project"
            engine.held.clear()
            engine.held.add("PUT /project/servers")
            card._remove("archive")
            await until(lambda: not engine.authoring.servers[second])
            studio.session.show_project(engine.project_store.projects[first])
            await until(lambda: list(card._rows) == ["library"])
            assert not page.tasks.busy("set server")
            engine.held.clear()
            assert list(engine.authoring.servers[first]) == ["library"]

    run(job())


def test_servers_are_not_contacted_without_packages(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.authoring.add_server(str(engine.workspace / "inbox-scout"))
        async with studio_on(engine, qapp, tmp_path) as studio:
            page = await setup_of(studio, engine, FILE)
            card = page._tools.servers
            await until(card._note.isVisible)
            assert not card._look.isEnabled()
            assert card._note.words().startswith("The agent's packages are not installed")

    run(job())
