"""Session: late responses are applied to the project or run they belong to."""

import asyncio
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.events.run import RunExtended
from engine.protocol.problems import Problem
from engine.protocol.requests.runs import EditProject
from studio.services.notifications import Question
from studio.services.settings import Settings
from studio.widgets.controls.buttons import Button
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.held import Held, hold
from tests.studio.fakes.servers import UNREACHABLE, view
from tests.studio.fakes.simulated_run import SMALL, Simulation
from tests.studio.screenshots.pages import open_project, studio_on

RUN, OTHER = "01JD5MAMBERKESTREL00000000", "01JD5MQUIETHERON0000000000"


def add(engine: FakeEngine, run_id: str, project: str, ended: bool) -> None:
    simulation = Simulation(run_id=run_id, name=f"run-of-{project}", project=project, train=SMALL)
    simulation.begin()
    for step in (1, 2):
        simulation.step(step)
    if ended:
        simulation.end(2)
    engine.add_project(project)
    engine.add_run(simulation.made, project)


def click_answer(words: str) -> None:
    dialog = QApplication.activeModalWidget()
    assert isinstance(dialog, Question)
    button = next(b for b in dialog.findChildren(Button) if b.words() == words)
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)


def sent_actions(engine: FakeEngine) -> list[str]:
    return [command.action for command in engine.commands]


def test_extend_applies_to_run_selected_when_dialog_opened(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        add(engine, RUN, "inbox-scout", ended=True)
        add(engine, OTHER, "tiles", ended=True)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            planned = engine.summaries[RUN].steps
            studio.actions.trigger("run.extend")
            await until(QApplication.activeModalWidget)
            studio.session.select_run(OTHER)
            click_answer("Extend")
            await until(lambda: engine.summaries[RUN].state == "running")
            assert sent_actions(engine) == ["extend"]
            assert engine.summaries[RUN].steps > planned
            assert engine.summaries[OTHER].state == "finished"
            assert not studio.notifier.words()

    run(job())


def test_commands_to_disconnected_server_are_sent_in_order(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.servers.put(view(state="connected"))
        engine.servers.lives_on[RUN] = "box"
        add(engine, RUN, "inbox-scout", ended=False)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            engine.servers.change("box", state="reconnecting", failures=1, problem=UNREACHABLE)
            hosts = studio.session.hosts
            await until(lambda: hosts.away("box"))
            hosts.ready = held = Held(hosts.ready)  # type: ignore[method-assign]
            for action in ("pause", "keep", "continue"):
                studio.session.command(action)
            await held.asked.wait()
            engine.servers.change("box", state="connected", failures=0, problem=None)
            await until(lambda: hosts.connected("box"))
            held.on.set()
            await until(lambda: len(engine.commands) == 3)
            assert sent_actions(engine) == ["pause", "keep", "continue"]
            await until(lambda: not studio.session.tasks.busy(f"continue {RUN}"))

    run(job())


def test_start_finishing_after_project_switch_only_notifies(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.add_project("inbox-scout")
        add(engine, OTHER, "tiles", ended=True)
        async with studio_on(engine, qapp, tmp_path) as studio:
            session = studio.session
            await open_project(studio, engine, "inbox-scout")
            held = hold(studio, "start_run")
            session.train()
            await held.asked.wait()
            await open_project(studio, engine, "tiles")
            page = studio.window.page
            held.on.set()
            await until(lambda: engine.started and not session.tasks.busy("train"))
            started = next(run for run in session.runs.all() if run.project == "inbox-scout")
            assert started.state == "running"
            assert (session.project.name, session.run.run_id) == ("tiles", OTHER)
            assert studio.window.page == page
            assert f"{started.name} of inbox-scout started" in studio.notifier.words()

    run(job())


def test_late_edit_does_not_reopen_its_project(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.add_project("inbox-scout")
        engine.add_project("tiles")
        async with studio_on(engine, qapp, tmp_path) as studio:
            session = studio.session
            await open_project(studio, engine, "inbox-scout")
            held, done = hold(studio, "edit_project"), asyncio.Event()
            session.edit(EditProject(values={"train.steps": 7}), lambda _: done.set(), pytest.fail)
            await held.asked.wait()
            await open_project(studio, engine, "tiles")
            held.on.set()
            await done.wait()
            assert session.project.name == "tiles"
            written = next(one for one in session.projects if one.name == "inbox-scout")
            assert written.config is not None
            assert written.config.train.steps == 7

    run(job())


def test_opened_project_selects_run_newer_than_last_refresh(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            add(engine, RUN, "inbox-scout", ended=True)
            assert not studio.session.runs.known(RUN)
            await open_project(studio, engine, "inbox-scout")
            assert studio.session.run.run_id == RUN

    run(job())


def test_rejected_start_resets_train_button(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.add_project("inbox-scout")
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            train = studio.window.header.train
            await until(lambda: train.state() == "ready")
            held = hold(studio, "start_run")
            studio.actions.trigger("run.train")
            await held.asked.wait()
            assert train.state() == "starting"
            engine.refuse["/runs"] = Problem(code="host.full", message="No room on box.")
            held.on.set()
            await until(lambda: "No room on box" in studio.notifier.words())
            await until(lambda: not studio.session.tasks.busy("train"))
            assert train.state() == "ready"

    run(job())


def test_most_recently_selected_idle_runs_stay_followed(
    engine: FakeEngine,
    run: Run,
    qapp: QApplication,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("studio.services.followed_runs.MOST_IDLE", 2)
    names = [f"01JD5MENDED{place:015}" for place in range(5)]

    async def job() -> None:
        add(engine, RUN, "inbox-scout", ended=False)
        for name in names:
            add(engine, name, "inbox-scout", ended=True)
        async with studio_on(engine, qapp, tmp_path) as studio:
            session, followed = studio.session, studio.link.pump._followed
            await open_project(studio, engine, "inbox-scout")
            for name in names:
                session.select_run(name)
                await until(lambda name=name: session.runs.state(name).done == 2)
            await until(lambda: set(followed) == {RUN, *names[2:]})
            await until(lambda: engine.listening == 4)
            session.select_run(names[0])
            await until(lambda: set(followed) == {RUN, *names[3:], names[0]})
            engine.runs[names[0]].say(RunExtended(steps=99))
            await until(lambda: session.run.state.planned == 99)

    run(job())


def test_failed_write_of_settings_is_notified(
    engine: FakeEngine,
    run: Run,
    qapp: QApplication,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(path: Path, settings: Settings) -> None:
        raise OSError("No space left on device")

    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            monkeypatch.setattr("studio.services.settings.write", full)
            studio.settings.update(smoothing=0.5)
            assert "No space left on device" in studio.notifier.words()

    run(job())
