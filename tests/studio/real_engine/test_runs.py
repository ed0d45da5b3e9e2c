"""Two runs with the same trajectory ids over a real engine: pages and labels are not mixed up."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.problems import Refused
from engine.protocol.records.labels import Label, Word
from engine.protocol.requests.runs import ImportRun
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import DATABASE
from studio.app import Studio
from tests.engine_http.conftest import make_project
from tests.engine_http.test_trials import trajectories_file
from tests.studio.conftest import Run, until
from tests.studio.real_window import page_of, window

SOON_S = 30.0
Key = Qt.Key


async def labels_of(studio: Studio, run_id: str) -> list[Label]:
    return await studio.session.client.labels(run_id)


async def open_group(studio: Studio, page: Any, run_id: str, group: int) -> None:
    studio.session.select_run(run_id)
    await until(lambda: page._lists._run_id == run_id, SOON_S)
    page.show_group("train", 1, group)
    await until(lambda: page._group_run == run_id and shown_group(page) == group, SOON_S)
    studio.window.activateWindow()
    page._home().setFocus()
    await until(lambda: QApplication.focusWidget() is page._home())


def shown_group(page: Any) -> int | None:
    """Number of the group on the page; at first that of the list's first row."""
    return page._siblings.group.group if page._siblings else None


def stored_labels(folder: Path) -> list[Label]:
    """Read labels from a run's database like another program would."""
    reader = RunReader(folder / DATABASE)
    try:
        return reader.labels()
    finally:
        reader.close()


def press(page: Any, key: Key) -> None:
    QTest.keyClick(QApplication.focusWidget() or page._home(), key)


@pytest.mark.timeout(120)
def test_switching_runs_clears_pages_and_keeps_labels_apart(
    run: Run, qapp: QApplication, tmp_path: Path, tiny_model: Path
) -> None:
    project = make_project(tmp_path / "workspace" / "letters", tiny_model)

    async def job() -> None:
        async with window(qapp, tmp_path / "workspace") as studio:
            session, source = studio.session, str(trajectories_file(project))
            first, second = [
                await session.client.import_run(str(project), ImportRun(source=source))
                for _ in range(2)
            ]
            session.refresh()
            session.open_project(str(project), "trajectories")
            await until(lambda: session.project.path == str(project), SOON_S)
            await until(lambda: not session.tasks.busy("project"), SOON_S)
            await until(lambda: len(session.runs.of(str(project))) == 2, SOON_S)
            page: Any = page_of(studio, "trajectories")
            await open_group(studio, page, first.id, 1)
            names = [one.id for one in page._siblings.trajectories]
            press(page, Key.Key_2)
            assert page._labels.labelling.draft

            session.select_run(second.id)  # the draft belongs to the first run
            assert page._siblings is None
            assert not page._labels.labelling.draft
            assert not page._labels.labelling.attempts
            assert "2" not in page._head.accessibleName()
            for key in (Key.Key_2, Key.Key_Return):
                press(page, key)
            await asyncio.sleep(0.5)
            assert await labels_of(studio, first.id) == []
            assert await labels_of(studio, second.id) == []

            await open_group(studio, page, second.id, 1)
            assert [one.id for one in page._siblings.trajectories] == names, "the same ids"
            press(page, Key.Key_3)
            press(page, Key.Key_Return)
            session.select_run(first.id)  # while the label is being sent
            await until(lambda: stored_labels(Path(second.path)), SOON_S)
            (label,) = await labels_of(studio, second.id)
            assert label.run_id == second.id
            assert label.words[0].trajectory_id == names[2]
            assert await labels_of(studio, first.id) == []

            wrong = Label(id="x", run_id=second.id, step=1, group=1, words=(_best(names[0]),))
            with pytest.raises(Refused) as refused:
                await session.client.add_label(first.id, wrong)
            assert refused.value.problem.code == "label.other_run"
            assert await labels_of(studio, first.id) == []

    run(job())


def _best(name: str) -> Word:
    return Word(kind="best", trajectory_id=name)
