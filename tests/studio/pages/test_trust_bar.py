"""Trust bar of an untrusted project over a real engine."""

import shutil
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.problems import Problem
from engine.protocol.requests.trust import AddressConfirmation, TrustProject
from engine.storage.project import load_config
from engine.trust.addresses import confirmed_addresses
from engine.trust.projects import is_trusted
from studio.app import Studio
from studio.pages.trust_bar import confirmation_of, question_of
from studio.services.notifications import Question
from studio.widgets.controls.buttons import Button
from tests.studio.conftest import Run, until
from tests.support.namespaces import NAMESPACES

HELLO = Path(__file__).parents[3] / "resources" / "samples" / "hello"
ADDRESS = "https://models.example.com/v1"
JUDGE = f'\n[judge]\nenabled = true\nmodels = ["openai/x"]\nbase_url = "{ADDRESS}"\n'


async def click_answer(words: str) -> str:
    """Click a button of the open dialog and return the dialog's title."""
    await until(lambda: isinstance(QApplication.activeModalWidget(), Question))
    active_dialog = QApplication.activeModalWidget()
    assert isinstance(active_dialog, Question)
    title = active_dialog.windowTitle()
    button = next(one for one in active_dialog.findChildren(Button) if one.words() == words)
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    return title


def test_project_is_trusted_and_address_confirmed(
    run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    project = tmp_path / "workspace" / "theirs"
    shutil.copytree(HELLO, project)
    toml = project / "project.toml"
    toml.write_text(toml.read_text() + JUDGE)

    async def job() -> None:
        studio = Studio(qapp, str(tmp_path / "workspace"), tmp_path / "studio.toml")
        studio.start()
        session, bar = studio.session, studio.window.trust_bar
        try:
            await until(lambda: session.connected and not session.tasks.busy("engine"), 30)
            session.open_project(str(project))
            await until(bar.isVisible)
            assert "not trusted" in bar.words()
            assert bar.button.words() == "Trust this project"
            QTest.mouseClick(bar.button, Qt.MouseButton.LeftButton)
            assert await click_answer("Cancel") == "Trust this project?"
            await until(lambda: not session.tasks.busy("trust"))
            assert not is_trusted(project)
            QTest.mouseClick(bar.button, Qt.MouseButton.LeftButton)
            await click_answer("Trust in a sandbox" if NAMESPACES else "Trust this project")
            await until(lambda: bar.button.words() == "Confirm address")
            assert is_trusted(project)
            sandbox = "process" if NAMESPACES else "none"
            assert load_config(project).agent.sandbox == sandbox
            assert "models.example.com" in bar.words()
            QTest.mouseClick(bar.button, Qt.MouseButton.LeftButton)
            assert await click_answer("Confirm address") == f"Send to {ADDRESS}?"
            await until(bar.isHidden)
            assert confirmed_addresses() == [
                AddressConfirmation(provider="openai", address=ADDRESS)
            ]
        finally:
            await session.client.shut_down()
            studio.window.close()
            await studio.close()
            studio.window.deleteLater()

    run(job())


def test_confirmation_is_read_from_problem_detail() -> None:
    confirmation = TrustProject(project="/p")
    detail = confirmation.model_dump_json()
    assert (
        confirmation_of(Problem(code="project.untrusted", message="", detail=detail))
        == confirmation
    )
    assert confirmation_of(Problem(code="run.busy", message="", detail=detail)) is None
    assert confirmation_of(Problem(code="file.outside", message="", detail="{")) is None
    title, words = question_of(AddressConfirmation(provider="openai", address=ADDRESS))
    assert ADDRESS in title
    assert "your openai key" in words
