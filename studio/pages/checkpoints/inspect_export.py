"""Export of the newest evaluation as logs of Inspect: button, folder dialog and files."""

import asyncio
from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QFileDialog

from engine.protocol.problems import Refused
from engine.runtime.files import replace_file
from studio.pages.checkpoints.evaluations import EvaluationController
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.text import formatting
from studio.widgets.controls.buttons import Button

JOB = "export for Inspect"


class InspectExport(QObject):
    """Asks for a folder when the button is clicked, and writes a log per model into it."""

    def __init__(
        self, session: Session, tasks: TaskScope, button: Button, evaluation: EvaluationController
    ) -> None:
        super().__init__(button)
        self._session, self._tasks, self._button = session, tasks, button
        self._evaluation = evaluation
        button.clicked.connect(self._ask_folder)
        tasks.busy_changed.connect(self._ended)

    def start(self, folder: Path) -> None:
        """Write the logs of the newest evaluation into a folder."""
        run = self._evaluation.newest
        if run is not None and not self._tasks.busy(JOB):
            self._button.set_busy("Exporting")
            self._tasks.run(JOB, self._write(run.id, folder), self._say_done)

    def _ask_folder(self) -> None:
        dialog = QFileDialog(self._button.window(), "Folder for the logs", str(Path.home()))
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.fileSelected.connect(lambda path: self.start(Path(path)))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    async def _write(self, run_id: str, folder: Path) -> tuple[int, Path]:
        names = (await self._session.client.inspect_logs(run_id)).names
        for number, name in enumerate(names):
            content = await self._session.client.inspect_log(run_id, number)
            await asyncio.to_thread(write_file, folder / Path(name).name, content)
        return len(names), folder

    def _say_done(self, result: tuple[int, Path]) -> None:
        count, folder = result
        words = formatting.plural(count, "log")
        self._session.notice.emit(f"{words} written to {folder}. Open them with Inspect View.")

    def _ended(self, name: str, busy: bool) -> None:
        if name == JOB and not busy:
            self._button.set_busy(None)


def write_file(file: Path, content: bytes) -> None:
    """Write a file, replacing one of the same evaluation. Raises Refused if it cannot be
    written."""
    try:
        replace_file(file, content)
    except OSError as error:
        raise Refused.of(
            "studio.not_written",
            f"The logs could not be written: {error.strerror or error}.",
            "Choose an existing folder with enough free disk space.",
            where=str(file),
        ) from error
