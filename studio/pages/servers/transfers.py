"""Move of a run between this machine and a server, with progress."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from PySide6.QtWidgets import QWidget

from engine.protocol.problems import Problem
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.remote import Moved, MoveTicked, SendRun
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.store.servers.servers import amount_words
from studio.text import formatting
from studio.widgets.cards.sheet import Sheet
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import STRETCH, add
from studio.widgets.tables.meter import Meter
from studio.widgets.text.text import Text

HOME = (
    "All trajectories, checkpoints and labels of {run} are downloaded and verified. "
    "The run then belongs to this machine and is deleted from {host}; resuming and "
    "branching happen here."
)
AWAY = (
    "The current project and all of {run} are uploaded to {host} and verified. The "
    "run then resumes on {host}; the local copy stays as a mirror."
)
KEPT = "Transferred files are kept; the next transfer continues from here."


class MoveSheet(Sheet):
    """Sheet for a move: `bring_home(run)` downloads, `send(run, name)` uploads, after
    confirmation."""

    def __init__(self, session: Session, tasks: TaskScope, host: QWidget) -> None:
        super().__init__("Move", host)
        self._session, self._tasks = session, tasks
        self._run: RunSummary | None = None
        self._to = ""
        self._words = Text("", "body", tone="muted", wrap=True)
        self._now = Text("", "label", 500, wrap=True)
        self._meter = Meter("Progress", "accent", 4)
        self._share = Text("", "mono-small", 400, "muted")
        self._problem = Text("", "label", 400, "bad", wrap=True, selectable=True)
        self._cancel = Button("Cancel", "quiet", height=32)
        self._go = Button("Move", "primary", height=32)
        add(self.body, self._words, self._now, self._meter, self._share, self._problem, STRETCH)
        add(self.foot, STRETCH, self._cancel, self._go)
        self._cancel.clicked.connect(self._leave)
        self._go.clicked.connect(self._begin)

    def bring_home(self, run: RunSummary) -> None:
        """Ask whether to move a remote run to this machine, then move it."""
        self._prepare(run, "", "Move to this machine", "download")

    def send(self, run: RunSummary, name: str) -> None:
        """Ask whether to move a run to the server `name`, then move it."""
        self._prepare(run, name, f"Move to {name}", "upload")

    def _prepare(self, run: RunSummary, to: str, does: str, icon: str) -> None:
        if self._moving:
            self.open()
            return
        self._run, self._to = run, to
        self.set_title(f"Move {run.name} to {to}" if to else f"Move {run.name} to this machine")
        words = AWAY if to else HOME
        self._words.set_words(words.format(run=run.name, host=to or run.host))
        self._go.set_words(does)
        self._go.set_icon(icon)
        self._show("")
        self.open()
        self._go.setFocus()

    @property
    def _moving(self) -> bool:
        return self._tasks.busy("move")

    @property
    def _server(self) -> str:
        return self._to or (self._run.host if self._run else "")

    def _begin(self) -> None:
        if self._run is not None and not self._moving:
            self._show(f"Connecting to {self._server}")
            self._tasks.run("move", self._move(self._run), self._done, self._failed)

    async def _move(self, run: RunSummary) -> None:
        await self._session.hosts.ready(self._server)
        async with aclosing(self._transfer(run)) as ticks:
            async for one in ticks:
                if isinstance(one, MoveTicked) and one.total:
                    self._show(amount_words(one.done, one.total), one.done / one.total)

    def _transfer(self, run: RunSummary) -> AsyncGenerator[MoveTicked | Moved, None]:
        client = self._session.client
        if self._to:
            return client.send_run(run.id, SendRun(host=self._to))
        return client.bring_home(run.id)

    def _done(self, _: object) -> None:
        run = self._run
        assert run is not None
        where = f"on {self._to}" if self._to else "on this machine"
        self._session.notice.emit(f"{run.name} is now {where}.")
        self._session.refresh()
        self._show("")
        self.close_sheet()

    def _failed(self, problem: Problem) -> None:
        self._show("")
        self._problem.set_words(f"{problem.message} {problem.hint}".strip())
        self._problem.setVisible(True)
        self._go.set_words("Try again")

    def _leave(self) -> None:
        """Stop the transfer, which can be resumed; without one, close the sheet."""
        if self._moving:
            self._tasks.cancel("move")
            self._show("")
            self._problem.set_words(KEPT)
            self._problem.setVisible(True)
            self._go.set_words("Resume")
        else:
            self.close_sheet()

    def _show(self, now: str, share: float | None = None) -> None:
        self._now.set_words(now)
        self._now.setVisible(bool(now))
        self._meter.setVisible(share is not None)
        self._share.setVisible(share is not None)
        self._meter.set_share(share or 0.0)
        self._share.set_words(formatting.percent(share) if share is not None else "")
        self._problem.setVisible(False)
        self._go.setEnabled(not now)
        self._cancel.set_words("Stop" if now else "Cancel")
