"""Export of trajectories as JSON lines: the selected rows, or all that match the filter."""

from contextlib import aclosing
from pathlib import Path
from typing import TextIO

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QFileDialog, QMenu

from engine.protocol.problems import Refused
from engine.protocol.records.runs import TrajectorySummary
from engine.protocol.requests.runs import ExportTrajectories
from engine.runtime.files import move_into_place, sync_open, temporary_file
from studio.models.trajectories import TrajectoryTableModel
from studio.pages.trajectories.trajectory_table import AttemptTable
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.text import formatting
from studio.widgets.controls.buttons import Button

JOB = "export trajectories"
SHOWN_EVERY = 20


class TrajectoryExport(QObject):
    """Export button with its menu, file dialog and progress; a click during an export cancels
    it."""

    def __init__(
        self,
        session: Session,
        tasks: TaskScope,
        button: Button,
        table: AttemptTable,
        rows: TrajectoryTableModel,
    ) -> None:
        super().__init__(button)
        self._session, self._tasks, self._button = session, tasks, button
        self._table, self._rows = table, rows
        button.clicked.connect(self._press)
        tasks.busy_changed.connect(self._ended)

    def menu(self) -> QMenu:
        """Build the menu: selected rows, all matches, and both with tokens."""
        menu = QMenu(self._button)
        menu.aboutToHide.connect(menu.deleteLater)
        ids = self._selected()
        everything = formatting.plural(self._rows.total, "trajectory", "trajectories")
        scopes: list[tuple[str, list[str]]] = [(f"Export {everything}…", [])]
        if ids:
            scopes.insert(0, (f"Export {len(ids)} selected…", ids))
        for tokens in (False, True):
            for words, chosen in scopes:
                action = menu.addAction(words.replace("…", " with tokens…") if tokens else words)
                action.setEnabled(bool(chosen) or self._rows.total > 0)
                action.triggered.connect(lambda _=False, i=chosen, t=tokens: self._ask_file(i, t))
            menu.addSeparator()
        return menu

    def start(self, file: Path, ids: list[str], tokens: bool) -> None:
        """Start writing trajectories to a file: those with `ids` or, if empty, all that match the
        filter. `tokens`: with token ids and log-probs."""
        query = self._rows.query.model_dump(exclude={"offset", "limit"})
        request = ExportTrajectories.model_validate({**query, "ids": ids, "tokens": tokens})
        run_id, total = self._session.run.run_id, len(ids) or self._rows.total
        self._button.set_busy("Cancel export", 0.0)
        self._tasks.run(JOB, self._write(run_id, request, file, total), self._say_done)

    def _press(self) -> None:
        if self._tasks.busy(JOB):
            self._tasks.cancel(JOB)
            self._button.set_busy(None)
            self._session.notice.emit("The export was cancelled; no file was written.")
            return
        below = self._button.mapToGlobal(self._button.rect().bottomLeft())
        self.menu().popup(below)

    def _selected(self) -> list[str]:
        records = map(self._rows.record, self._table.chosen_rows())
        return [one.id for one in records if isinstance(one, TrajectorySummary)]

    def _ask_file(self, ids: list[str], tokens: bool) -> None:
        summary = self._session.run.summary
        name = f"{summary.name if summary else 'run'}.jsonl"
        start = str(Path.home() / name)
        forms = "JSON lines (*.jsonl)"
        dialog = QFileDialog(self._button.window(), "Export trajectories", start, forms)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix("jsonl")
        dialog.selectFile(name)
        dialog.fileSelected.connect(lambda path: self.start(Path(path), ids, tokens))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    async def _write(
        self, run_id: str, request: ExportTrajectories, file: Path, total: int
    ) -> tuple[int, Path]:
        """Write beside the file and rename, so that a cancelled export leaves nothing."""
        scratch = temporary_file(file)
        try:
            with scratch.open("w", encoding="utf-8") as target:
                count = await self._stream(run_id, request, target, total)
                sync_open(target)
            move_into_place(scratch, file)
        except OSError as error:
            raise Refused.of(
                "studio.not_written",
                f"The trajectories could not be written: {error.strerror or error}.",
                "Choose an existing folder with enough free disk space.",
                where=str(file),
            ) from error
        finally:
            scratch.unlink(missing_ok=True)
        return count, file

    async def _stream(
        self, run_id: str, request: ExportTrajectories, target: TextIO, total: int
    ) -> int:
        count = 0
        lines = self._session.client.export_trajectories(run_id, request)
        async with aclosing(lines):
            async for line in lines:
                target.write(line.model_dump_json() + "\n")
                count += 1
                if count % SHOWN_EVERY == 0:
                    self._button.set_busy("Cancel export", min(1.0, count / max(1, total)))
        return count

    def _say_done(self, result: tuple[int, Path]) -> None:
        count, file = result
        words = formatting.plural(count, "trajectory", "trajectories")
        self._session.notice.emit(f"{words} written to {file}.")

    def _ended(self, name: str, busy: bool) -> None:
        if name == JOB and not busy:
            self._button.set_busy(None)
