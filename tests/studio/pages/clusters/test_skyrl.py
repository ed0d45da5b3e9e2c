"""SkyRL as a cluster in the window: started, watched, stopped and edited, by keyboard alone."""

from pathlib import Path
from typing import Any

import keyring
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.problems import Problem
from engine.protocol.requests.clusters import ClusterSpec, SkyrlSettings
from engine.protocol.requests.remote import HostTick
from studio.app import Studio
from studio.services import clusters as cluster_service
from studio.widgets.controls.command_block import CommandBlock
from tests.studio.buttons.conftest import MemoryKeyring
from tests.studio.conftest import Run, until
from tests.studio.fakes.clusters import COMMAND, OUT_OF_MEMORY, SETTINGS, SKYRL, TUNNEL, server_of
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.servers import UNREACHABLE, view
from tests.studio.pages.clusters.test_clusters import focused, press, tab_to, type_text
from tests.studio.screenshots.pages import open_project, studio_on

HERE = SKYRL.model_copy(update={"host": ""})


@pytest.fixture(autouse=True)
def ring(monkeypatch: pytest.MonkeyPatch) -> MemoryKeyring:
    ring = MemoryKeyring()
    monkeypatch.setattr(keyring, "get_keyring", lambda: ring)
    return ring


def words_in(studio: Studio) -> str:
    result: Any = studio.servers.start_sheet._result
    parts = (result._title, result._words, result._models)
    return "\n".join(part.words() for part in parts if not part.isHidden())


def row(studio: Studio, name: str = "skyrl") -> Any:
    page: Any = studio.pages["settings"]
    return page.clusters.rows[name]


def shown(studio: Studio) -> set[str]:
    """Visible buttons of the row, without those that every row has."""
    buttons = row(studio)._buttons.items()
    return {verb for verb, one in buttons if not one.isHidden()} - {"edit", "remove"}


def add_box(engine: FakeEngine) -> None:
    """Add a server with an engine that is not connected."""
    engine.servers.installed.add("box")
    engine.servers.put(view())


async def open_sheet(studio: Studio) -> Any:
    sheet: Any = studio.servers.start_sheet
    studio.window.activateWindow()
    studio.actions.trigger("clusters.open")
    await until(lambda: studio.session.connected)
    tab_to("Add a cluster")
    QTest.keyClick(focused(), Qt.Key.Key_Tab, Qt.KeyboardModifier.ShiftModifier)
    assert focused() is studio.pages["settings"].clusters._start  # type: ignore[attr-defined]
    press(Qt.Key.Key_Return)
    await until(lambda: sheet.is_open() and sheet.name.editor.hasFocus())
    await until(lambda: sheet.model.choices())
    return sheet


def test_skyrl_is_started_on_a_server_by_keyboard(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.add_project("inbox-scout")
        add_box(engine)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            await until(lambda: studio.session.hosts.all)
            sheet = await open_sheet(studio)
            config = studio.session.project.view.config  # type: ignore[union-attr]
            assert config is not None
            assert sheet.model.value() == config.model.name
            type_text("big")
            press(Qt.Key.Key_Tab)
            press(Qt.Key.Key_Down)
            assert sheet.place.value() == "box"
            assert sheet._rows["place"].note().startswith("box is not connected")
            press(Qt.Key.Key_Tab)
            sheet.model.line.selectAll()
            type_text("Qwen/Qwen3-8B")
            tab_to("Options")
            press(Qt.Key.Key_Space)
            press(Qt.Key.Key_Tab)
            focused().selectAll()  # type: ignore[attr-defined]
            type_text("6")
            engine.held.add("POST /clusters/big/start")
            tab_to("Start")
            press(Qt.Key.Key_Return)
            await until(lambda: engine.clusters.starts)
            assert engine.servers.acted == [("box", "connect")]
            name, request = engine.clusters.starts[0]
            assert (name, request.host) == ("big", "box")
            assert request.settings == SkyrlSettings(model="Qwen/Qwen3-8B", adapters=6)
            tick = HostTick(stage="syncing", words="Qwen3-8B", done=4_000_000_000,
                            total=16_000_000_000)  # fmt: skip
            engine.servers.change("box", tick=tick)
            await until(lambda: "Uploading Qwen3-8B · 4.0 of 16.0 GB" in words_in(studio))
            assert (sheet._start.is_busy(), sheet._start._meter) == (True, 0.25)
            assert not sheet._rows["model"].isEnabled()
            press(Qt.Key.Key_Return)
            engine.held.clear()
            await until(lambda: not sheet.is_open())
            assert len(engine.clusters.starts) == 1
            assert row(studio, "big")._words.words() == "installing SkyRL on box…"
            assert "SkyRL starts on box as cluster big." in studio.notifier.words()

    run(job())


def test_start_on_this_machine_names_what_is_wrong(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.clusters.put(SKYRL, server=server_of(SKYRL, "running"))
        engine.servers.put(view(state="connected"))
        problem = Problem(code="model.missing", message="There is no model x.", hint="Download it.")
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.clusters.all and studio.session.hosts.all)
            sheet = await open_sheet(studio)
            assert sheet.name.value() == "skyrl-2"
            for name, model, key, words in (
                ("a b", "x", "name", "The name must begin with a letter or digit"),
                ("skyrl", "x", "name", "A cluster named skyrl already exists."),
                ("new", " ", "model", "Choose a base model"),
            ):
                sheet.name.set_value(name)
                sheet.model.set_value(model)
                sheet.name.editor.setFocus()
                press(Qt.Key.Key_Return)
                assert words in sheet._rows[key].problem()
                assert sheet._rows[key].field.isAncestorOf(focused())
            sheet.place.set_value("box")
            sheet._edited("place", "box")
            assert "box already runs SkyRL, as skyrl." in sheet._rows["place"].note()
            sheet.place.set_value("")
            sheet._edited("place", "")
            sheet.model.set_value("x")
            engine.refuse["/clusters/new/start"] = problem
            press(Qt.Key.Key_Return)
            await until(lambda: "There is no model x. Download it." in words_in(studio))
            assert not sheet._start.is_busy()
            assert sheet._rows["name"].isEnabled()
            engine.servers.meets["box"] = UNREACHABLE
            add_box(engine)
            await until(lambda: not studio.session.hosts.connected("box"))
            sheet.place.set_value("box")
            tab_to("Start")
            press(Qt.Key.Key_Space)
            await until(lambda: UNREACHABLE.message in words_in(studio))
            assert not engine.clusters.starts
            press(Qt.Key.Key_Escape)
            assert not sheet.is_open()

    run(job())


def test_start_goes_on_after_its_sheet_is_closed(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            sheet = await open_sheet(studio)
            sheet.model.set_value("x")
            engine.held.add("POST /clusters/skyrl/start")
            press(Qt.Key.Key_Return)
            await until(lambda: engine.clusters.starts)
            press(Qt.Key.Key_Escape)
            assert not sheet.is_open()
            studio.actions.trigger("clusters.start")
            assert sheet._start.is_busy()
            assert sheet.model.value() == "x"
            press(Qt.Key.Key_Escape)
            engine.held.clear()
            await until(lambda: studio.session.clusters.view("skyrl"))
            engine.refuse["/clusters/skyrl-2/start"] = OUT_OF_MEMORY
            sheet = await open_sheet(studio)
            sheet.model.set_value("x")
            press(Qt.Key.Key_Return)
            press(Qt.Key.Key_Escape)
            await until(lambda: OUT_OF_MEMORY.message in studio.notifier.words())

    run(job())


def test_several_nodes_show_commands(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            sheet = await open_sheet(studio)
            sheet.model.set_value("org/large")
            sheet.nodes.editor.setFocus()
            press(Qt.Key.Key_Up)
            press(Qt.Key.Key_Up)
            await until(lambda: len(sheet._blocks) == 4)
            assert sheet._start.isHidden()
            assert not sheet.name.isEnabled()
            titles = ["Every node, once", "First node", "Node 2", "Node 3"]
            assert [block.title for block in sheet._blocks] == titles
            assert engine.clusters.launches[-1].settings.model == "org/large"
            tab_to("Copy")
            press(Qt.Key.Key_Return)
            assert QApplication.clipboard().text() == sheet._blocks[0].command
            sheet._unfold(True)
            sheet.options["gpus"].editor.setFocus()
            press(Qt.Key.Key_Up)
            await until(lambda: '"tensor_parallel_size": 2' in sheet._blocks[1].command)
            sheet.model.line.setFocus()
            sheet.model.line.selectAll()
            press(Qt.Key.Key_Backspace)
            await until(lambda: not sheet._blocks)
            assert "Choose a base model" in sheet._rows["model"].problem()
            engine.refuse["/clusters/commands"] = Problem(code="x", message="Not on this engine.")
            type_text("m")
            await until(lambda: "Not on this engine." in words_in(studio))
            press(Qt.Key.Key_Return)
            assert not engine.clusters.starts
            tab_to("Add a cluster")
            press(Qt.Key.Key_Return)
            form: Any = studio.servers.cluster_sheet
            await until(lambda: form.is_open() and not sheet.is_open())
            assert not form.findChildren(CommandBlock)

    run(job())


def test_row_stops_starts_and_copies(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.clusters.put(HERE, server=server_of(HERE, "running"))
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.clusters.all)
            studio.window.activateWindow()
            studio.actions.trigger("clusters.open")
            assert shown(studio) == {"stop", "test", "copy"}
            tab_to("Launch command")
            press(Qt.Key.Key_Return)
            assert QApplication.clipboard().text() == COMMAND
            engine.held.add("POST /clusters/skyrl/stop")
            row(studio)._stop.setFocus()
            press(Qt.Key.Key_Return)
            assert row(studio)._stop.is_busy()
            engine.held.clear()
            await until(lambda: row(studio)._words.words() == "off")
            assert shown(studio) == {"start"}
            assert focused() is row(studio)._start
            press(Qt.Key.Key_Return)
            await until(lambda: engine.clusters.starts and not row(studio)._start.is_busy())
            assert engine.clusters.starts[0][1].settings == SETTINGS
            assert shown(studio) == {"stop", "copy"}
            engine.refuse["/clusters/skyrl/stop"] = Problem(
                code="cluster.in_use", message="A run uses it."
            )
            row(studio)._stop.setFocus()
            press(Qt.Key.Key_Return)
            await until(lambda: "A run uses it." in studio.notifier.words())
            assert not row(studio)._stop.is_busy()

    run(job())


def test_list_is_reloaded_only_while_a_server_changes_and_is_in_view(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(cluster_service, "POLL_MS", 20)

    async def job() -> None:
        engine.clusters.put(HERE, server=server_of(HERE, "installing"))
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.clusters.all)
            timer = studio.session.clusters._poll
            assert not timer.isActive()
            studio.actions.trigger("clusters.open")
            assert timer.isActive()
            before = engine.clusters.lists
            await until(lambda: engine.clusters.lists > before + 3)
            studio.window.show_page("home")
            assert not timer.isActive()
            studio.actions.trigger("clusters.open")
            engine.clusters.serve("skyrl", "running")
            await until(lambda: row(studio)._words.words() == "running on this machine")
            assert not timer.isActive()
            engine.clusters.serve("skyrl", "failed", problem=OUT_OF_MEMORY)
            studio.session.clusters.refresh()
            await until(lambda: OUT_OF_MEMORY.message in row(studio)._problem.words())
            assert row(studio)._log.words() == OUT_OF_MEMORY.detail

    run(job())


def test_server_of_a_cluster_is_connected_from_its_row(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        add_box(engine)
        engine.clusters.put(SKYRL)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.clusters.all and studio.session.hosts.all)
            studio.window.activateWindow()
            studio.actions.trigger("clusters.open")
            await until(lambda: row(studio)._words.words() == "box is not connected")
            assert shown(studio) == {"connect"}
            engine.clusters.serve("skyrl", "running")
            tab_to("Connect")
            press(Qt.Key.Key_Return)
            await until(lambda: row(studio)._words.words() == "running on box")
            assert engine.servers.acted == [("box", "connect")]

    run(job())


def test_edit_starts_with_other_settings(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.clusters.put(HERE, server=server_of(HERE, "failed", problem=OUT_OF_MEMORY))
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.clusters.all)
            studio.window.activateWindow()
            studio.actions.trigger("clusters.open")
            tab_to("Edit")
            press(Qt.Key.Key_Return)
            sheet: Any = studio.servers.start_sheet
            await until(lambda: sheet.is_open() and sheet.model.line.hasFocus())
            assert sheet.accessibleName() == "Edit skyrl"
            assert not sheet.name.isEnabled()
            assert sheet._rows["nodes"].isHidden()
            assert sheet._start.words() == "Start"
            sheet.options["micro_batch"].set_value(2)
            tab_to("Start")
            press(Qt.Key.Key_Return)
            await until(lambda: engine.clusters.starts and not sheet.is_open())
            changed = SETTINGS.model_copy(update={"micro_batch": 2})
            assert engine.clusters.starts[0][1].settings == changed
            assert engine.clusters.stops == []
            studio.actions.trigger("clusters.open")
            sheet.change("skyrl")
            assert sheet.options["micro_batch"].value() == 2
            assert sheet._start.words() == "Restart"
            sheet._start.setFocus()
            press(Qt.Key.Key_Return)
            await until(lambda: len(engine.clusters.starts) == 2)
            assert engine.clusters.stops == []  # the engine replaces it

    run(job())


def test_cluster_is_reached_through_a_server(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, ring: MemoryKeyring
) -> None:
    async def job() -> None:
        add_box(engine)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.hosts.all)
            studio.window.activateWindow()
            studio.actions.trigger("clusters.add")
            sheet: Any = studio.servers.cluster_sheet
            await until(lambda: sheet.name.editor.hasFocus())
            type_text("lab")
            press(Qt.Key.Key_Tab)
            type_text("http://127.0.0.1:8000")
            press(Qt.Key.Key_Tab)
            press(Qt.Key.Key_Down)
            assert sheet.host.value() == "box"
            assert sheet._rows["host"].note() == "http://127.0.0.1:PORT is a port on box."
            sheet.key.set_value("key-1")
            tab_to("Test connection")
            press(Qt.Key.Key_Return)
            await until(lambda: engine.clusters.checked)
            expected = ClusterSpec(name="lab", address=TUNNEL.address, host="box")
            assert engine.clusters.checked == [(expected, "key-1")]
            assert engine.servers.acted == [("box", "connect")]
            tab_to("Save")
            press(Qt.Key.Key_Return)
            await until(lambda: not sheet.is_open())
            assert engine.clusters.views["lab"].spec == expected
            stored = ring.passwords["atelier", "cluster:lab"]
            assert stored == "http://127.0.0.1:8000@box key-1"
            sheet.change("lab")
            await until(lambda: sheet._stored)
            assert sheet.host.value() == "box"
            sheet.host.set_value("")
            tab_to("Save")
            press(Qt.Key.Key_Return)
            assert "Enter the API key again" in sheet._rows["key"].problem()

    run(job())


def test_run_on_skyrl_connects_its_server_and_sends_no_key(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("TINKER_API_KEY", "tml-canary")

    async def job() -> None:
        engine.add_project("inbox-scout")
        add_box(engine)
        engine.clusters.put(SKYRL)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            await until(lambda: studio.session.clusters.all and studio.session.hosts.all)
            studio.session.choose_place("", "skyrl")
            assert studio.window.header.pill.text() == "skyrl · SkyRL on box"
            studio.actions.trigger("run.train")
            await until(lambda: engine.started)
            assert engine.started[0].overrides == {"backend.cluster": "skyrl"}
            assert engine.servers.acted == [("box", "connect")]
            assert engine.clusters.keys == {}

    run(job())
