"""Studio over a fake engine on HTTP: main user flows and limits."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.problems import Problem
from engine.protocol.records.runs import Finding
from engine.protocol.requests.runs import TrajectoryQuery
from studio.app import Studio
from studio.main_window import LEAST
from studio.pages.run.page import RunPage
from studio.pages.setup.page import SetupPage
from studio.pages.trajectories.page import TrajectoriesPage
from studio.runtime.single_instance import SingleInstance
from tests.studio.conftest import Run, StallWatch, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.simulated_run import Simulation
from tests.studio.screenshots.pages import open_project, studio_on

RUN = "01JD5MAMBERKESTREL00000000"
LONGEST_STALL_S = 0.1


@pytest.fixture
def filled(engine: FakeEngine) -> FakeEngine:
    simulation = Simulation(run_id=RUN)
    simulation.begin()
    for step in range(1, 5):
        simulation.step(step)
    engine.add_project("inbox-scout")
    engine.add_run(simulation.made)
    return engine


def page(studio: Studio, key: str) -> Any:
    return studio.pages[key]


def test_first_start_opens_sample_and_trains(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.samples)
            home = page(studio, "home")
            home._samples.chosen.emit(studio.session.samples[0])
            await until(lambda: studio.session.project.name == "hello")
            assert studio.window.page == "setup"
            await until(lambda: studio.actions.holds("trainable"))
            studio.actions.trigger("run.train")
            await until(lambda: studio.window.page == "run")
            await until(lambda: studio.session.run.state.validations)
            assert [asked.kind for asked in engine.started] == ["train"]
            assert engine.started[0].key
        assert not engine.commands, "closing the window sends no command"

    run(job())


def test_reopening_project_replays_its_run(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        for _ in range(2):
            async with studio_on(filled, qapp, tmp_path) as studio:
                await open_project(studio, filled, "inbox-scout")
                state = studio.session.runs.state(RUN)
                await until(lambda state=state: state.done == 4)
                assert studio.session.run.run_id == RUN
                assert studio.actions.holds("living")
        assert studio.settings.current.recent_projects == [str(filled.workspace / "inbox-scout")]

    run(job())


def test_each_command_is_sent_once(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(filled, qapp, tmp_path) as studio:
            await open_project(studio, filled, "inbox-scout")
            studio.actions.trigger("run.pause")
            await until(lambda: studio.session.run.state.status == "paused")
            await until(lambda: studio.window.header.train.state() == "paused")
            studio.actions.trigger("run.resume")
            await until(lambda: studio.session.run.state.status == "running")
            await until(lambda: studio.actions.holds("stoppable"))
            studio.actions.trigger("run.stop_now")
            await until(lambda: studio.session.run.state.status == "stopped")
            await until(lambda: studio.actions.holds("resumable"))
            studio.actions.trigger("run.resume")
            await until(lambda: studio.session.run.state.status == "running")
        actions = [command.action for command in filled.commands]
        assert actions == ["pause", "continue", "stop_now", "resume"]
        assert len({command.key for command in filled.commands}) == 4

    run(job())


def test_thousand_events_per_second_do_not_stall_gui(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, stall_watch: StallWatch
) -> None:
    async def job() -> None:
        async with studio_on(filled, qapp, tmp_path) as studio:
            await open_project(studio, filled, "inbox-scout")
            studio.window.show_page("run")
            await asyncio.sleep(1.0)
            flood = filled.flood(RUN, 1000, 4.0)
            worst = await longest_stall(stall_watch, 4.5)
            # noise of the machine only adds; a stall of the studio shows every time
            for _ in range(5):
                if worst >= LONGEST_STALL_S:
                    flood = filled.flood(RUN, 1000, 4.0)
                    worst = min(worst, await longest_stall(stall_watch, 4.5))
            flood.join()
            state = studio.session.run.state
            await until(lambda: state.seq == len(filled.runs[RUN].events))
        assert state.seq > 3000
        assert worst < LONGEST_STALL_S, f"the window stood still for {worst * 1000:.0f} ms"

    run(job())


async def longest_stall(watch: StallWatch, seconds: float) -> float:
    """Return the longest stall of the GUI thread during `seconds`."""
    watch.start()
    await asyncio.sleep(seconds)
    return watch.stop()


def test_lost_engine_is_shown_and_reconnected(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(filled, qapp, tmp_path) as studio:
            await open_project(studio, filled, "inbox-scout")
            port = filled.port
            filled.stop()
            studio.link.pump.nudge()
            await until(lambda: "reconnecting in" in studio.feed.link.words)
            for _ in range(8):
                studio.link.pump.nudge()
                await asyncio.sleep(0.1)
            await until(lambda: studio.feed.link.contact == "gone")
            assert not studio.window._slot_box.isHidden()
            filled.start(port)
            await until(lambda: studio.feed.link.contact == "connected")
            assert studio.window._slot_box.isHidden()
            await until(lambda: not studio.session.tasks.busy("reopen"))

    run(job())


def test_chart_point_opens_trajectories_of_its_step(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(filled, qapp, tmp_path) as studio:
            await open_project(studio, filled, "inbox-scout")
            studio.window.show_page("run")
            running: RunPage = page(studio, "run")
            await until(lambda: studio.session.run.state.done == 4)
            running._grid.bound["reward"].card.step_clicked.emit(3)
            reading: TrajectoriesPage = page(studio, "trajectories")
            await until(lambda: reading._siblings is not None)
            assert studio.window.page == "trajectories"
            assert reading._groups.query == TrajectoryQuery(step=3)
            assert reading._groups.total == 8
            assert {group.step for group in reading._groups._pages[0]} == {3}
            reading.set_mode(1)
            reading._columns.move_focus(1)
            reading._panel._unscored.toggled.emit(True)
            await until(lambda: reading._groups.is_loaded)
            assert reading._groups.query.state == "unscored"

    run(job())


def test_finding_opens_its_chart_and_chart_can_be_pinned(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(filled, qapp, tmp_path) as studio:
            await open_project(studio, filled, "inbox-scout")
            studio.window.show_page("run")
            running: RunPage = page(studio, "run")
            await until(lambda: studio.session.run.state.done == 4)
            grid, gap = running._grid, running._grid.bound["gap"].card
            assert grid._counts == [6, 4, 1, 4, 4]
            assert all(chart.card.has_data() for chart in running._grid.bound.values())
            assert grid.verticalScrollBar().maximum() > 0
            finding = Finding(code="apart", title="They disagree.", words="", where="chart:gap")
            running._open_finding(finding)
            assert grid.full is gap
            assert gap.height() == grid.viewport().height()
            studio.window.activateWindow()
            await until(studio.window.isActiveWindow)
            studio.window.sidebar.setFocus()  # Escape works wherever the focus is
            QTest.keyClick(studio.window, Qt.Key.Key_Escape)
            await until(lambda: grid.full is None)
            grid._toggle_chart("gap", True)
            assert grid._counts == [7, 4, 1, 3, 4]
            assert running._grid.bound["gap"].card is gap

    run(job())


def test_setup_shows_problem_at_its_control(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(filled, qapp, tmp_path) as studio:
            await open_project(studio, filled, "inbox-scout")
            studio.window.show_page("setup")
            setup: SetupPage = page(studio, "setup")
            form = setup._form
            form.edited.emit("train.group_size", 1)
            await until(lambda: form._advanced.rows)  # a problem unfolds them
            await until(lambda: form._advanced.rows["train.group_size"].problem())
            form.edited.emit("train.group_size", 4)
            path = str(filled.workspace / "inbox-scout")
            await until(lambda: filled.project_store.projects[path].config.train.group_size == 4)  # type: ignore[union-attr]
            await until(lambda: not form._advanced.rows["train.group_size"].problem())
            setup._choose(1)
            setup._toml.editor.setPlainText("[train]\nlearning_rat = 1\n")
            setup.save()
            await until(lambda: "learning_rat" in setup._toml._words.words())
            setup.show_scenarios("train")
            await until(lambda: setup._scenarios.model.rowCount() == 48)
            setup._scenarios.model.add()
            setup.save()
            await until(lambda: len(filled.project_store.scenario_files[path, "train"]) == 49)
            await until(lambda: setup._scenarios.model.undo.isClean())

    run(job())


def test_preset_fills_form_and_differences_are_shown(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(filled, qapp, tmp_path) as studio:
            await open_project(studio, filled, "inbox-scout")
            studio.window.show_page("setup")
            setup: SetupPage = page(studio, "setup")
            form, card = setup._form, setup._form._method
            form._advanced.unfold(True)
            form.edited.emit("train.algorithm.entropy", 0.01)
            await until(lambda: "in entropy" in card._differs.words())
            card.preset_chosen.emit("dapo")
            await until(lambda: card._choice.value() == "dapo" and card._own.isHidden())
            assert form._advanced.rows["train.algorithm.refills"].field.value() == 3
            form.edited.emit("train.algorithm.refills", 1)
            await until(lambda: card._differs.words() == "Differs from DAPO in refills.")
            assert form._advanced.rows["train.algorithm.refills"]._note.words() == "DAPO uses 3"
            card._back.click()
            await until(lambda: card._own.isHidden())
            form.edited.emit("train.algorithm.kl_in", "advantage")
            await until(
                lambda: "set kl above 0" in form._advanced.rows["train.algorithm.kl_in"].problem()
            )

    run(job())


def test_import_reports_invalid_line(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(filled, qapp, tmp_path) as studio:
            await open_project(studio, filled, "inbox-scout")
            studio.window.show_page("setup")
            setup: SetupPage = page(studio, "setup")
            setup.show_scenarios("train")
            await until(lambda: setup._scenarios.model.rowCount() == 48)
            bad = tmp_path / "more.jsonl"
            bad.write_text('{"id": "x"}\nnot json\n')
            setup._scenarios.import_file(str(bad))
            await until(lambda: setup._scenarios.model.rowCount() == 49)
            assert "more.jsonl:2" in setup._scenarios._words.words()
            bad.write_bytes(b"\xff\xfe\x00")
            setup._scenarios.import_file(str(bad))
            await until(lambda: "UTF-8" in setup._scenarios._words.words())

    run(job())


def test_rejected_command_is_notified(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(filled, qapp, tmp_path) as studio:
            await open_project(studio, filled, "inbox-scout")
            problem = Problem(code="run.busy", message="Another run holds this machine.")
            filled.refuse[f"/runs/{RUN}/command"] = problem
            studio.actions.trigger("run.pause")
            await until(lambda: "holds this machine" in studio.notifier.words())

    run(job())


def test_command_palette_finds_and_triggers_action(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(filled, qapp, tmp_path) as studio:
            from PySide6.QtTest import QTest

            from studio.shell.palette import CommandPalette, ShortcutSheet

            await open_project(studio, filled, "inbox-scout")
            palette = CommandPalette(studio.window, studio.actions)
            palette.show()
            QTest.keyClicks(palette._input, "go to ch")
            assert [spec.id for spec in palette._model.rows] == ["go.checkpoints"]
            QTest.keyClick(palette._input, Qt.Key.Key_Return)
            assert studio.window.page == "checkpoints"
            sheet = ShortcutSheet(studio.window)
            sheet.open()
            await asyncio.sleep(0.05)
            sheet.close()

    run(job())


def test_pages_fit_smallest_window(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(filled, qapp, tmp_path) as studio:
            await open_project(studio, filled, "inbox-scout")
            studio.window.resize(*LEAST)
            for key in studio.pages:
                studio.window.show_page(key)
                await asyncio.sleep(0.1)
                assert studio.window.width() == LEAST[0], f"{key} widens the window"
                assert studio.window.height() == LEAST[1], f"{key} heightens the window"

    run(job())


def test_second_instance_raises_first(qapp: QApplication, run: Run) -> None:
    async def job() -> None:
        first, second = SingleInstance("w"), SingleInstance("w")
        assert not first.raise_first("")
        requested: list[str] = []
        first.project_requested.connect(requested.append)
        first.listen()
        assert await asyncio.to_thread(second.raise_first, "/p/x")
        await until(lambda: requested)
        first.close()
        assert requested == ["/p/x"]

    run(job())


def test_studio_imports_no_heavy_library() -> None:
    code = (
        "import sys, time, studio.app\n"
        "heavy = {'torch', 'litellm', 'transformers', 'starlette', 'keyring'} & set(sys.modules)\n"
        "print(time.process_time())\n"  # CPU time: other processes use the cores too
        "sys.exit(str(sorted(heavy)) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 4
