"""Downloads of checkpoints from a remote server, one at a time, with progress."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.problems import Problem
from engine.protocol.requests.remote import MoveTicked
from studio.pages.checkpoints.rows import Contender
from studio.runtime.tasks import TaskScope
from studio.services.notifications import Choice, ask
from studio.services.session import Session
from studio.store.servers.servers import amount_words
from studio.text import formatting


class DownloadQueue(QObject):
    """Queue of checkpoint downloads. Emits `changed` on progress and `fetched` after the
    verification of a download."""

    changed = Signal()
    fetched = Signal()

    def __init__(self, session: Session, tasks: TaskScope, window: QWidget) -> None:
        super().__init__(window)
        self._session, self._tasks, self._window = session, tasks, window
        self.coming: Contender | None = None
        self.words = ""
        self.share: float | None = None
        self._turn = asyncio.Lock()
        self._jobs = {"talk", "place"}
        """Names of the page's jobs that may be downloading."""

    def start(self, row: Contender) -> None:
        """Queue the download of a checkpoint; a partial download is resumed."""
        job = f"fetch {row.name}"
        if not self._tasks.busy(job):
            if self.coming is not None:
                self._session.notice.emit(f"{row.words} is fetched after {self.coming.words}.")
            self._jobs.add(job)
            self._tasks.run(job, self.bring([row]), failed=self._failed)

    def cancel(self) -> None:
        """Cancel the current and all queued downloads; files received so far are kept."""
        for name in self._jobs:
            self._tasks.cancel(name)
        self._end()

    async def bring(self, rows: Sequence[Contender]) -> None:
        """Download the checkpoints of all rows and return when all are complete. Raises
        AtelierError if a download fails."""
        async with self._turn:
            try:
                for row in rows:
                    await self._bring_one(row)
            finally:
                self._end()
        self.fetched.emit()

    async def agree(self, rows: Sequence[Contender], what: str, there: str = "") -> str:
        """Ask whether to fetch checkpoints that are stored on a server, since the action `what` (a
        noun) needs their files. `there` labels a further button that runs the action on the server
        (empty: no such button). Returns `fetch`, `there` or an empty string (cancelled)."""
        host = rows[0].elsewhere
        names = " and ".join(row.words for row in rows)
        size = formatting.size(sum(row.kept.checkpoint.bytes for row in rows if row.kept))
        choices = [Choice("", "Cancel")]
        if there:
            choices.append(Choice("there", there))
        choices.append(Choice("fetch", "Fetch and continue", "primary", size))
        verb = "is" if len(rows) == 1 else "are"
        words = (
            f"{names[:1].upper()}{names[1:]} {verb} stored on {host}, and {what} needs the "
            "files on this machine."
        )
        if there:
            words = (
                f"{names[:1].upper()}{names[1:]} {verb} stored on {host}. Run the {what} there, or "
                "fetch the files first."
            )
        answer, _ = await ask(self._window.window(), "Not on this machine", words, choices)
        return answer or ""

    async def _bring_one(self, row: Contender) -> None:
        assert row.step is not None
        run_id = row.name.partition("@")[0]
        self._tell(row, f"Connecting to {row.elsewhere}", None)
        await self._session.hosts.ready(row.elsewhere)
        async with aclosing(self._session.client.fetch_checkpoint(run_id, row.step)) as ticks:
            async for one in ticks:
                if isinstance(one, MoveTicked) and one.total:
                    words = f"Fetching {amount_words(one.done, one.total)}"
                    self._tell(row, words, one.done / one.total)

    def _tell(self, row: Contender, words: str, share: float | None) -> None:
        self.coming, self.words, self.share = row, words, share
        self.changed.emit()

    def _end(self) -> None:
        self.coming, self.share = None, None
        self.changed.emit()

    def _failed(self, problem: Problem) -> None:
        self._session.problem_raised.emit(problem)
