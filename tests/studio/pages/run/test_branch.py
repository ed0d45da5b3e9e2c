"""Branch sheet over the fake engine: stays open until the run has started."""

from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from engine.protocol.problems import Problem
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.pages.checkpoints.test_page import with_checkpoints
from tests.studio.screenshots.pages import open_project, studio_on

__all__ = ["with_checkpoints"]


def test_rejected_branch_is_reported_in_sheet(
    with_checkpoints: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(with_checkpoints, qapp, tmp_path) as studio:
            await open_project(studio, with_checkpoints, "inbox-scout")
            studio.window.show_page("run")
            await until(lambda: studio.actions.holds("branchable"))
            page: Any = studio.pages["run"]
            sheet = page._branch
            problems: list[Problem] = []
            studio.session.problem_raised.connect(problems.append)
            page.open_branch(5)
            sheet._lr.set_value(5e-5)
            sheet._refresh()
            with_checkpoints.held.add("POST /runs")
            with_checkpoints.refuse["/runs"] = Problem(
                code="run.busy", message="It is busy.", hint="Later."
            )
            sheet._go.click()
            await until(lambda: sheet._problem.words() == "It is busy. Later.")
            assert sheet.is_open()
            assert problems == [], "the problem is shown only once, in the sheet"
            sheet._go.click()
            sheet.close_sheet()
            await until(lambda: [one.code for one in problems] == ["run.busy"])
            page.open_branch(5)
            assert sheet._lr.value() == 5e-5
            with_checkpoints.refuse.clear()
            sheet._go.click()
            await until(lambda: bool(with_checkpoints.started))
            assert sheet.is_open(), "the sheet stays until the engine confirms"
            sheet._go.click()
            with_checkpoints.held.clear()
            await until(lambda: not sheet.is_open())
            assert len(with_checkpoints.started) == 1
            assert with_checkpoints.started[0].overrides["train.lr"] == 5e-5

    run(job())
