"""The branch sheet and the engine: it stays until the run has begun."""

from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from engine.protocol.problems import Problem
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.pages.checkpoints.test_page import kept
from tests.studio.screenshots.pages import open_project, studio_on

__all__ = ["kept"]


def test_a_refused_branch_says_why_beside_what_was_entered(
    kept: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(kept, qapp, tmp_path) as studio:
            await open_project(studio, kept, "inbox-scout")
            studio.window.show_page("run")
            await until(lambda: studio.actions.holds("branchable"))
            page: Any = studio.pages["run"]
            sheet = page._branch
            elsewhere: list[Problem] = []
            studio.session.problem_raised.connect(elsewhere.append)
            page.open_branch(5)
            sheet._lr.set_value(5e-5)
            sheet._refresh()
            kept.held.add("POST /runs")
            kept.refuse["/runs"] = Problem(code="run.busy", message="It is busy.", hint="Later.")
            sheet._go.click()
            await until(lambda: sheet._problem.words() == "It is busy. Later.")
            assert sheet.is_open()
            assert elsewhere == [], "it is said once, where a person looks"
            sheet._go.click()
            sheet.close_sheet()
            await until(lambda: [one.code for one in elsewhere] == ["run.busy"])
            page.open_branch(5)
            assert sheet._lr.value() == 5e-5
            kept.refuse.clear()
            sheet._go.click()
            await until(lambda: bool(kept.started))
            assert sheet.is_open(), "it is not begun before the engine says so"
            sheet._go.click()
            kept.held.clear()
            await until(lambda: not sheet.is_open())
            assert len(kept.started) == 1
            assert kept.started[0].overrides["train.lr"] == 5e-5

    run(job())
