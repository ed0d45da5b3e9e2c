"""Export of a run's labels to a JSON Lines file, and import of such a file. The task scope of the
session owns the job."""

import asyncio
from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QFileDialog, QWidget

from engine.protocol.problems import AtelierError, ConfigError
from engine.protocol.records.labels import Label, labels_of_lines
from studio.services.session import Session
from studio.shell.import_trajectories import chosen
from studio.text import formatting

FORM = "Labels (*.jsonl);;All files (*)"
MOST_BYTES = 2**28


class LabelFiles(QObject):
    """Controller of the export and import of labels of the selected run."""

    def __init__(self, window: QWidget, session: Session) -> None:
        super().__init__(window)
        self._window, self._session = window, session

    def save(self) -> None:
        """Ask for a file, and write all labels of the selected run that are not undone to it."""
        self._session.tasks.run("labels.export", self._save())

    def load(self) -> None:
        """Ask for a JSON Lines file, and add its labels to those of the selected run."""
        self._session.tasks.run("labels.import", self._load())

    async def _save(self) -> None:
        run = self._session.run.summary
        if run is None:
            return
        folder = self._session.project.path or str(Path.home())
        place = str(Path(folder) / f"{run.name}-labels.jsonl")
        dialog = QFileDialog(self._window, "Export labels", place, FORM)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix("jsonl")
        dialog.selectFile(place)
        if not (file := await chosen(dialog)):
            return
        labels = [one for one in await self._session.client.labels(run.id) if one.holds()]
        lines = "".join(f"{label.model_dump_json()}\n" for label in labels)
        try:
            await asyncio.to_thread(Path(file).write_text, lines, "utf-8")
        except OSError as error:
            raise ConfigError.of(
                "label.unwritable",
                f"The labels cannot be written: {error.strerror or error}.",
                "Choose another file.",
                where=file,
            ) from error
        count = formatting.plural(len(labels), "label")
        self._session.notice.emit(f"{count} from {run.name} written to {Path(file).name}.")

    async def _load(self) -> None:
        run = self._session.run.summary
        if run is None:
            return
        folder = self._session.project.path or str(Path.home())
        dialog = QFileDialog(self._window, "Import labels", folder, FORM)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        if not (file := await chosen(dialog)):
            return
        labels = await asyncio.to_thread(read_labels, Path(file))
        client = self._session.client
        known = {label.id for label in await client.labels(run.id)}
        for stored, label in enumerate(labels):
            try:
                await client.add_label(run.id, label)
            except AtelierError as error:
                before = f"{stored} of {formatting.plural(len(labels), 'label')} were stored. "
                message = before + error.problem.message
                raise AtelierError(error.problem.model_copy(update={"message": message})) from error
        fresh = sum(label.id not in known for label in labels)
        again = f", {len(labels) - fresh} were already stored" if fresh < len(labels) else ""
        count = formatting.plural(fresh, "label")
        self._session.notice.emit(f"{count} imported into {run.name}{again}.")


def read_labels(file: Path) -> list[Label]:
    """Read the labels of a JSON Lines file. Raises ConfigError if it is unreadable or not one."""
    try:
        if file.stat().st_size > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES >> 20} MB")
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigError.of(
            "label.unreadable",
            f"The labels cannot be read: {getattr(error, 'strerror', None) or error}.",
            "Choose a JSON Lines file that was exported from Atelier.",
            where=str(file),
        ) from error
    return labels_of_lines(enumerate(text.splitlines(), 1), str(file))
