"""Import of trajectories: ask for project and file, import through the engine, open the run. The
task scope of the session owns the job, from the dialog to the opened run."""

import asyncio
import time
from pathlib import Path

from PySide6.QtCore import QDir, QObject
from PySide6.QtWidgets import QFileDialog, QWidget

from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.runs import ImportRun
from studio.services.notifications import Choice, ask
from studio.services.session import Session
from studio.text import formatting

SAY_EVERY_S = 5.0
"""Interval of progress messages; each is visible for six seconds."""
WORDS = (
    "The trajectories become a run of {project}, where you can read, label and judge "
    'them. Use a file with one {{"messages": […]}} object per line (OpenAI '
    "format), or the .art folder of OpenPipe's ART."
)
FORMS = "Trajectories (*.jsonl *.parquet);;All files (*)"


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
        kind, _ = await ask(self._window, "Import trajectories", words, choices)
        source = await chosen(self._dialog(kind, project)) if kind else ""
        if source:
            await self.bring(project, source)

    def _dialog(self, kind: str, project: str) -> QFileDialog:
        title = "Import an .art folder" if kind == "folder" else "Import a trajectory file"
        dialog = QFileDialog(self._window, title, project, FORMS if kind == "file" else "")
        mode = QFileDialog.FileMode
        dialog.setFileMode(mode.Directory if kind == "folder" else mode.ExistingFile)
        dialog.setFilter(dialog.filter() | QDir.Filter.Hidden)  # .art folders are hidden files
        return dialog

    async def bring(self, project: str, source: str) -> None:
        """Import a file or folder (`source`) into a project (path), report progress and open the
        run."""
        request = ImportRun(source=source)
        importing = asyncio.ensure_future(self._session.client.import_run(project, request))
        try:
            await self._wait(importing, Path(source).name)
        finally:
            importing.cancel()
            await asyncio.gather(importing, return_exceptions=True)  # its error is raised below
        run = importing.result()
        self._session.runs.put(run)
        self._session.open_run(run, "trajectories")
        self._session.notice.emit(_result_words(run))

    async def _wait(self, importing: "asyncio.Future[RunSummary]", name: str) -> None:
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
