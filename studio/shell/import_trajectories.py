"""Import of trajectories or scenarios: ask for the form and the file, import through the engine,
open the run or the scenarios. The task scope of the session owns the job, from the dialog to the
opened page."""

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from PySide6.QtCore import QDir, QObject
from PySide6.QtWidgets import QFileDialog, QWidget

from engine.protocol.records.runs import RunSummary, Split
from engine.protocol.requests.runs import ImportRun, ImportScenarios
from studio.services.notifications import Choice, ask
from studio.services.session import Session
from studio.text import formatting
from studio.widgets.controls.segmented import Segmented
from studio.widgets.controls.toggle import Toggle
from studio.widgets.forms.form_fields import Field
from studio.widgets.layouts import vbox

SAY_EVERY_S = 5.0
"""Interval of progress messages; each is visible for six seconds."""
WORDS = (
    "Trajectories become a run of {project}, where you can read, label and judge them. As "
    "scenarios, the messages up to the first answer are added to its scenarios. Use a file with "
    'one {{"messages": […]}} object per line (OpenAI format), traces of OpenTelemetry, Phoenix or '
    "Langfuse, or the .art folder of OpenPipe's ART."
)
FORMS = "Trajectories and traces (*.jsonl *.json *.parquet);;All files (*)"
AS: tuple[tuple[Split | None, str], ...] = (
    (None, "Trajectories"),
    ("train", "Training scenarios"),
    ("validation", "Validation scenarios"),
)
T = TypeVar("T")


class ImportOptions(Field):
    """Form of an import, and whether personal data is masked. The value is the split of scenarios
    (None: trajectories), and whether to mask."""

    def __init__(self) -> None:
        self._form = Segmented([words for _, words in AS], "Import as", height=32)
        self._mask = Toggle("Mask personal data")
        editor = QWidget()
        super().__init__("Import options", editor)
        vbox(self._form, self._mask, parent=editor, spacing=8)

    def value(self) -> tuple[Split | None, bool]:
        return AS[self._form.index()][0], self._mask.isChecked()


class Importer(QObject):
    """Controller of imports, one at a time."""

    def __init__(self, window: QWidget, session: Session) -> None:
        super().__init__(window)
        self._window, self._session = window, session

    def start(self, project: str = "") -> None:
        """Ask for a file or .art folder, and import it into a project (path; empty: the open one).
        Shows only a notice while another import is running."""
        if self._session.tasks.busy("import"):
            self._session.notice.emit("Another import is running.")
            return
        path = project or self._session.project.path
        self._session.tasks.run("import", self._ask_and_import(path))

    async def _ask_and_import(self, project: str) -> None:
        choices = [
            Choice("", "Cancel"),
            Choice("folder", "An .art folder…"),
            Choice("file", "A file…", "primary"),
        ]
        words = WORDS.format(project=Path(project).name)
        kind, options = await ask(
            self._window, "Import trajectories", words, choices, ImportOptions()
        )
        source = await chosen(self._dialog(kind, project)) if kind else ""
        split, mask = options
        if source and split is None:
            await self.bring(project, source, mask)
        elif source:
            await self.add_scenarios(project, source, split, mask)

    def _dialog(self, kind: str, project: str) -> QFileDialog:
        title = "Import an .art folder" if kind == "folder" else "Import a trajectory file"
        dialog = QFileDialog(self._window, title, project, FORMS if kind == "file" else "")
        mode = QFileDialog.FileMode
        dialog.setFileMode(mode.Directory if kind == "folder" else mode.ExistingFile)
        dialog.setFilter(dialog.filter() | QDir.Filter.Hidden)  # .art folders are hidden files
        return dialog

    async def bring(self, project: str, source: str, mask: bool = False) -> None:
        """Import a file or folder (`source`) into a project (path), report progress and open the
        run. `mask` replaces personal data."""
        request = ImportRun(source=source, mask=mask)
        run = await self._finished(self._session.client.import_run(project, request), source)
        self._session.runs.put(run)
        self._session.open_run(run, "trajectories")
        self._session.notice.emit(_result_words(run))

    async def add_scenarios(self, project: str, source: str, split: Split, mask: bool) -> None:
        """Append the beginnings of conversations to the scenarios of a project (path), report
        progress and show Setup."""
        request = ImportScenarios(source=source, split=split, mask=mask)
        client = self._session.client
        done = await self._finished(client.import_scenarios(project, request), source)
        if self._session.project.path == project:
            self._session.show_project(await client.project(project))
            self._session.place_wanted.emit("setup")
        else:
            self._session.open_project(project)
        added = f"{formatting.plural(done.new, 'scenario')} added to {Path(done.path).name}"
        omitted = f"; {formatting.count(done.repeated)} known ones omitted"
        self._session.notice.emit(f"{added}{omitted if done.repeated else ''}.")

    async def _finished(self, call: Coroutine[Any, Any, T], source: str) -> T:
        """Result of an import, with notices while it lasts; cancelling cancels the call."""
        importing = asyncio.ensure_future(call)
        try:
            await self._wait(importing, Path(source).name)
        finally:
            importing.cancel()
            await asyncio.gather(importing, return_exceptions=True)  # its error is raised below
        return importing.result()

    async def _wait(self, importing: "asyncio.Future[Any]", name: str) -> None:
        started_at = time.monotonic()
        self._session.notice.emit(f"Importing {name}…")
        while not (await asyncio.wait([importing], timeout=SAY_EVERY_S))[0]:
            passed = formatting.duration(time.monotonic() - started_at)
            self._session.notice.emit(f"Importing {name} (running for {passed})…")


async def chosen(dialog: QFileDialog) -> str:
    """Open a file dialog and wait for it; returns the selected path, empty if cancelled."""
    answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def finish(accepted: int) -> None:
        if not answered.done():
            files = dialog.selectedFiles() if accepted else []
            answered.set_result(files[0] if files else "")

    dialog.finished.connect(finish)
    dialog.open()
    try:
        return await answered
    finally:
        dialog.deleteLater()


def _result_words(run: RunSummary) -> str:
    unscored = f", {formatting.count(run.unscored)} of them unscored" if run.unscored else ""
    return f"{run.name}: {formatting.count(run.trajectories)} trajectories imported{unscored}."
