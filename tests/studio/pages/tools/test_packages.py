"""Agent packages on the Setup page: required for training, installed by a button."""

from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.problems import Problem
from studio.app import Studio
from studio.widgets.controls.buttons import Button
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.environments import AGENT
from tests.studio.screenshots.pages import open_project, studio_on

FILE = "requirements.txt"


async def setup_of(studio: Studio, engine: FakeEngine, requirements: str | None) -> Any:
    view = engine.add_project()
    assert view.config is not None
    agent = view.config.agent.model_copy(update={"requirements": requirements})
    config = view.config.model_copy(update={"agent": agent})
    engine.project_store.projects[view.path] = view.model_copy(update={"config": config})
    await open_project(studio, engine, view.name)
    studio.window.show_page("setup")
    return studio.pages["setup"]


def find_button(page: Any, words: str) -> Button | None:
    buttons = page._tools.packages.findChildren(Button)
    return next((b for b in buttons if b.words() == words and b.isVisible()), None)


async def press_button(page: Any, words: str) -> None:
    await until(lambda: find_button(page, words))
    button = find_button(page, words)
    assert button is not None
    button.setFocus()
    QTest.keyClick(button, Qt.Key.Key_Return)


def test_packages_are_installed_before_training(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.environments.steps = 10_000
        async with studio_on(engine, qapp, tmp_path) as studio:
            page = await setup_of(studio, engine, FILE)
            await until(lambda: find_button(page, "Install"))
            assert page._tools.packages.lacking == "The agent's packages are not installed"
            assert not page._preflight._train.isEnabled()
            await press_button(page, "Install")
            await press_button(page, "Cancel")
            engine.environments.steps = 1
            await press_button(page, "Resume")
            await until(lambda: not page._tools.packages.lacking)
            assert page._preflight._train.isEnabled()
        verbs = [verb for _, verb in engine.environments.asked]
        assert verbs == ["install", "cancel", "install"]

    run(job())


def test_failed_installation_shows_problem(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    problem = Problem(code="environment.pip_failed", message="There is no `lang-graf`.")
    engine.environments.change(AGENT, problem=problem)

    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            page = await setup_of(studio, engine, FILE)
            await until(lambda: page._tools.packages._row._problem.words() == problem.message)
            assert find_button(page, "Install") is not None

    run(job())


def test_agent_without_requirements_shows_no_packages(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            page = await setup_of(studio, engine, None)
            await until(lambda: page._preflight._train.isEnabled())
            assert not page._tools.packages.isVisible()

    run(job())
