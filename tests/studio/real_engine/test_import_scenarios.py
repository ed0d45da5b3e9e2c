"""Import of traces as scenarios over a real engine: from the dialog to the table in Setup."""

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from studio.pages.setup.tabs.scenarios import ScenariosTab
from studio.shell.import_trajectories import ImportOptions
from tests.engine.integrations.importers.traces.files import langfuse_calls, write_lines
from tests.engine_http.conftest import make_project
from tests.studio.conftest import Run, until
from tests.studio.real_window import window
from tests.studio.shell.test_import_trajectories import choose

SOON_S = 30.0


@pytest.mark.timeout(280)
def test_traces_become_training_scenarios(
    run: Run, qapp: QApplication, tmp_path: Path, tiny_model: Path
) -> None:
    project = make_project(tmp_path / "workspace" / "letters", tiny_model)
    file = write_lines(tmp_path / "spans.jsonl", *langfuse_calls())

    async def job() -> None:
        async with window(qapp, tmp_path / "workspace") as studio:
            session = studio.session
            session.open_project(str(project), "setup")
            await until(lambda: session.project.path == str(project), SOON_S)
            studio.pages["setup"].show_scenarios("train")  # type: ignore[attr-defined]
            (tab,) = studio.window.findChildren(ScenariosTab)
            await until(lambda: tab.model.rows, SOON_S)
            before = len(tab.model.rows)
            studio.actions.trigger("project.import")
            await until(lambda: studio.window.findChildren(ImportOptions))
            (options,) = studio.window.findChildren(ImportOptions)
            await until(options.isVisible)
            cell = options._form._cells()[1].center().toPoint()
            QTest.mouseClick(options._form, Qt.MouseButton.LeftButton, pos=cell)
            await choose(studio, "A file…", file)
            await until(lambda: "1 scenario added to train.jsonl" in studio.notifier.words())
            await until(lambda: len(tab.model.rows) == before + 1, SOON_S)
            train = session.project.split("train")
            assert train is not None
            assert train.count == before + 1

    run(job())
