"""Studio window over a real engine process and real runs, operated with the mouse."""

import asyncio
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.problems import Problem
from engine.protocol.requests.runs import ImportRun, StartRun
from engine.runtime.ids import ulid
from studio.pages.run.damaged import DamagedRun
from studio.services.notifications import Question
from studio.widgets.controls.buttons import Button
from tests.engine.judge.scripted import Script, provider
from tests.engine.storage.run_db.test_repair import make
from tests.engine_http.conftest import CACHE, make_project
from tests.engine_http.test_judge import JUDGE, letters
from tests.engine_http.test_trials import RUBRIC, trajectories_file
from tests.studio.buttons.every_button import obstacle
from tests.studio.conftest import Run, until
from tests.studio.real_window import page_of, window

SOON_S = 120.0


def click(button: Button) -> None:
    assert not obstacle(button), f"{button.words()} is {obstacle(button)}"
    QTest.mouseClick(button, Qt.MouseButton.LeftButton, pos=button.rect().center())


@pytest.mark.timeout(280)
def test_rejudge_button_shows_trial_of_stored_groups(
    run: Run, qapp: QApplication, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored groups of a finished run, a judge process, and a scripted provider."""
    monkeypatch.setenv("XDG_CACHE_HOME", CACHE)  # the judge's environment is installed only once

    async def job(script: Script) -> None:
        toml = JUDGE.format(url=script.url).replace("enabled = true", "enabled = false")
        project = make_project(tmp_path / "workspace" / "lab", tiny_model, toml=toml)
        (project / "rubric.md").write_text(RUBRIC)
        async with window(qapp, tmp_path / "workspace") as studio:
            session = studio.session
            await session.client.lend_keys({"openai": "sk-x"})
            source = ImportRun(source=str(trajectories_file(project)))
            await session.client.import_run(str(project), source)
            session.refresh()
            session.open_project(str(project), "judge")
            await until(lambda: studio.window.page == "judge", SOON_S)
            page: Any = studio.pages["judge"]
            button = page.choice.price._button
            await until(lambda: "2 calls" in button.accessibleName(), SOON_S)
            click(button)
            await until(lambda: page.trial._row.count() == 2, SOON_S)
            await until(lambda: not page.tasks.busy("trial"), SOON_S)
            assert script.asked, "the provider was asked"

    with provider(Script(grade=letters)) as script:
        run(job(script))


@pytest.mark.timeout(280)
def test_run_of_killed_engine_is_stopped_and_resumes(
    run: Run, qapp: QApplication, tmp_path: Path, tiny_model: Path
) -> None:
    """Kill the engine during a step, start another one in the same window."""
    project = make_project(tmp_path / "workspace" / "letters", tiny_model)

    async def job() -> None:
        async with window(qapp, tmp_path / "workspace") as studio:
            session, train = studio.session, studio.window.header.train
            session.open_project(str(project))
            await until(lambda: studio.actions.holds("trainable"), SOON_S)
            values = {"train.steps": 500, "train.validate_every": 0, "train.checkpoint_every": 1}
            session.start_run(StartRun(project=str(project), overrides=values))
            await until(lambda: session.run.state.done >= 2, SOON_S)
            await until(lambda: train.state() == "training")
            endpoint = session.link.endpoint
            assert endpoint is not None
            os.kill(endpoint.pid, signal.SIGKILL)
            await until(lambda: session.feed.link.contact != "connected", SOON_S)
            started_at = time.monotonic()
            studio.actions.trigger("engine.start")
            await until(lambda: session.connected, SOON_S)
            await until(lambda: train.state() == "paused", 20)
            print(f"shown as stopped {time.monotonic() - started_at:.1f} s after the engine start")
            await asyncio.sleep(0.5)  # the replay must change nothing
            summary = session.run.summary
            assert summary is not None
            assert (summary.state, session.run.state.status) == ("stopped", "stopped")
            assert studio.actions.holds("resumable")
            assert not session.runs.active()
            done = session.run.state.done
            studio.actions.trigger("run.resume")
            await until(lambda: session.run.state.done > done, SOON_S)
            assert session.run.state.active
            session.command("stop_now")
            await until(lambda: not session.run.state.active, SOON_S)

    run(job())


@pytest.mark.timeout(280)
def test_damaged_run_is_repaired_and_another_deleted(
    run: Run, qapp: QApplication, tmp_path: Path, tiny_model: Path
) -> None:
    """Damaged runs are listed and opened without an event feed.

    An unreadable project opens on Setup.
    """
    workspace = tmp_path / "workspace"
    project = make_project(workspace / "letters", tiny_model)
    runs = [project / "runs" / name for name in ("01JD5MAMBERKESTREL00000000", ulid())]
    for folder in runs:
        with ThreadPoolExecutor(1) as pool:  # asyncio.run would replace this loop
            pool.submit(make, folder, 60).result()
        file = folder / "run.json"
        file.write_text(file.read_text().replace(runs[0].name, folder.name))
        db = apsw.Connection(str(folder / "run.db"))
        db.execute("UPDATE events SET body = replace(body, ?, ?)", (runs[0].name, folder.name))
        last = "SELECT max(seq) FROM events WHERE kind IN ('step.finished', 'run.started')"
        db.execute(f"UPDATE events SET body = ? WHERE seq = ({last})", ("{",))
        db.close()
    broken = workspace / "broken"
    broken.mkdir()
    (broken / "project.toml").write_bytes(b'name = "caf\xe9"\n')

    async def job() -> None:
        async with window(qapp, workspace) as studio:
            session, page = studio.session, studio.pages["run"]
            session.open_project(str(broken))
            await until(lambda: studio.window.page == "setup", SOON_S)
            for place in ("home", "setup", "judge", "run", "trajectories", "checkpoints"):
                studio.window.show_page(place)
                await asyncio.sleep(0.1)
            session.open_project(str(project), "run")
            await until(lambda: session.project.path == str(project), SOON_S)
            problems: list[Problem] = []
            session.problem_raised.connect(problems.append)
            for folder in runs:
                session.select_run(folder.name)
                for place in ("judge", "trajectories", "checkpoints", "run"):
                    studio.window.show_page(place)
                    await asyncio.sleep(0.1)
                assert session.run.damaged
                assert studio.actions.holds("damaged")
                assert folder.name not in session.following._followed
            assert not problems, "no failing request was sent"
            session.select_run(runs[0].name)
            shown: Any = page.findChild(DamagedRun)
            buttons = {b.words(): b for b in shown.findChildren(Button) if b.isVisible()}
            click(buttons["Repair"])
            await until(lambda: not session.run.damaged, SOON_S)
            await until(lambda: session.run.state.seq > 0, SOON_S)
            assert "was repaired" in studio.notifier.words()
            session.select_run(runs[1].name)
            studio.actions.trigger("run.remove")
            await until(lambda: isinstance(QApplication.activeModalWidget(), Question))
            question: Any = QApplication.activeModalWidget()
            assert question.windowTitle().startswith("Delete run ")
            click(next(b for b in question.findChildren(Button) if b.words() == "Delete"))
            await until(lambda: not runs[1].exists(), SOON_S)
            await until(lambda: session.run.run_id == runs[0].name, SOON_S)

    run(job())


@pytest.mark.timeout(280)
def test_external_changes_are_detected_and_not_overwritten(
    run: Run, qapp: QApplication, tmp_path: Path, tiny_model: Path
) -> None:
    """Change project.toml and the rubric under unsaved edits, agent and scenarios without."""
    project = make_project(tmp_path / "workspace" / "letters", tiny_model)
    (project / "rubric.md").write_text(RUBRIC)
    toml = project / "project.toml"

    async def click_answer(words: str) -> None:
        await until(lambda: isinstance(QApplication.activeModalWidget(), Question), SOON_S)
        question: Any = QApplication.activeModalWidget()
        assert question.windowTitle().endswith("was changed by another program")
        click(next(b for b in question.findChildren(Button) if b.words() == words))
        await asyncio.sleep(0.1)

    async def job() -> None:
        async with window(qapp, tmp_path / "workspace") as studio:
            session, setup = studio.session, page_of(studio, "setup")
            session.open_project(str(project))
            await until(lambda: studio.actions.holds("trainable"), SOON_S)
            for change, name in (
                (lambda: (project / "agent.py").write_text("broken ("), "agent.py"),
                (lambda: (project / "scenarios/train.jsonl").write_text(""), "train.jsonl"),
                (lambda: (project / "rubric.md").unlink(), "rubric.md"),
            ):
                changed_at = time.monotonic()
                change()
                await until(lambda name=name: name in studio.notifier.words(), SOON_S)
                print(f"{name} change was detected after {time.monotonic() - changed_at:.1f} s")
            assert not session.project.trainable, "an emptied scenario file is a problem"
            mine, theirs = "# mine\n" + toml.read_text(), "# theirs\n" + toml.read_text()
            setup._choose(1)
            setup._toml.editor.setPlainText(mine)
            toml.write_text(theirs)
            setup._toml.save()
            await click_answer("Show difference")
            await click_answer("Reload the file")
            assert toml.read_text() == theirs
            assert setup._toml.editor.toPlainText() == theirs
            setup._toml.editor.setPlainText(mine)
            toml.write_text(theirs + "\n")
            setup._toml.save()
            await click_answer("Keep my changes")
            await until(lambda: toml.read_text() == mine, SOON_S)
            (project / "rubric.md").write_text(RUBRIC)
            judge = page_of(studio, "judge")
            await until(lambda: judge.editor.source == RUBRIC, SOON_S)
            QTest.keyClicks(judge.editor.text, "Mine. ")
            draft = judge.editor.source
            (project / "rubric.md").write_text("Theirs.\n")
            judge.save()
            await click_answer("Keep my changes")
            await until(lambda: (project / "rubric.md").read_text() == draft, SOON_S)

    run(job())
