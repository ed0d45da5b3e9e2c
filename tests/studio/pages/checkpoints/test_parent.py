"""Checkpoints of a branch: compared with the run that it came from."""

from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from engine.protocol.records.runs import Parent
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.simulated_run import Simulation
from tests.studio.screenshots.pages import open_project, studio_on


def test_branch_is_compared_with_its_parent(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.add_project("inbox-scout")
        first, branch = Simulation(), Simulation("01JD5MQUIETHERON0000000000", "quiet-heron")
        for simulation in (first, branch):
            simulation.begin()
            for step in range(1, 11):
                simulation.step(step)
            engine.add_run(simulation.made)
        parent = first.made.spec
        summary = engine.summaries[branch.made.spec.id]
        engine.summaries[summary.id] = summary.model_copy(
            update={"parent": Parent(run_id=parent.id, name=parent.name, step=5)}
        )
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            studio.window.resize(1280, 800)
            studio.window.show_page("checkpoints")
            page: Any = studio.pages["checkpoints"]
            studio.session.select_run(parent.id)
            await until(lambda: page._model.rows)
            assert not page._list._compare.isVisible()
            studio.session.select_run(summary.id)
            await until(page._list._compare.isVisible)
            assert "of training" in page._model.index(0, 1).data(3)
            page._list._compare.click()
            await until(lambda: studio.window.page == "runs")
            runs: Any = studio.pages["runs"]
            await until(lambda: runs.compare_view.isVisible())

    run(job())
