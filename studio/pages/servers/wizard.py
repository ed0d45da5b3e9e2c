"""Wizard that adds a server: address, connection, survey, installation, ready. Each step shows the
state of the server. Closing the sheet stops nothing."""

from typing import Literal

from PySide6.QtCore import QTimer, Slot
from PySide6.QtWidgets import QWidget

from engine.protocol.problems import Problem
from engine.protocol.requests.remote import HostView
from studio.pages.servers.address import AddressForm
from studio.pages.servers.report import ReportView
from studio.runtime.tasks import TaskScope
from studio.services.servers import STALE_S, UNDER_WAY, HostAction
from studio.services.session import Session
from studio.store.servers.server_rows import Step, install_offer, step_of, unfit
from studio.store.servers.servers import share_of, tick_words
from studio.widgets.cards.key_values import KeyValues
from studio.widgets.cards.sheet import Sheet
from studio.widgets.controls.buttons import Button, IconButton
from studio.widgets.controls.toggle import Toggle
from studio.widgets.layouts import STRETCH, add, vbox
from studio.widgets.tables.meter import Meter
from studio.widgets.text.text import Text

TITLES = {
    "address": "Step 1 of 5 · Address",
    "waiting": "Step 2 of 5 · Connect",
    "report": "Step 3 of 5 · Survey",
    "installing": "Step 4 of 5 · Install",
    "ready": "Step 5 of 5 · Ready",
}
NOTHING_YET = (
    "Password and host key prompts appear in the window. Nothing is installed in this step. "
    "Closing this sheet cancels the connection."
)
GOES_ON = "Closing this sheet does not stop the installation, which resumes after an interruption."
CUT_OFF = "The installation was interrupted. Transferred files are kept; press Install to resume."


class AddServerSheet(Sheet):
    """Wizard: `begin()` opens step 1, `go_on(name)` the current step of a server, and
    `change(name)` edits its address and settings."""

    def __init__(self, session: Session, tasks: TaskScope, host: QWidget) -> None:
        super().__init__("Add a server", host)
        self._session, self._hosts, self._tasks = session, session.hosts, tasks
        self._name = ""
        self._shown: Step | Literal["address"] = "address"
        self._requested = self._installing = self._started = False
        """Whether a request is pending; whether the user has started an installation; whether a
        connection or an installation was begun in this sheet."""
        self._refused: Problem | None = None
        self._step = Text("", "caption", 500, "faint")
        self._form = AddressForm(lambda name: self._hosts.view(name) is not None)
        self._live = LiveStep()
        self._report, self._ready = ReportView(), ReadyStep()
        self._note = Text("", "label", 400, "warn", wrap=True)
        self._back = Button("Back", "quiet", height=32)
        self._later = Button("Later", "quiet", height=32)
        self._again = IconButton("refresh-cw", "Check again", size=28)
        self._main = Button("Connect", "primary", height=32)
        self._stale = QTimer(self)
        self._stale.setSingleShot(True)
        self._stale.setInterval(int(STALE_S * 1000))
        self._build()
        self._wire()

    def begin(self) -> None:
        """Open the wizard at step 1 for a new server."""
        self._form.begin()
        self._set_name("")
        self._open()

    def go_on(self, name: str) -> None:
        """Open the wizard at the current step of the listed server `name`."""
        if (view := self._hosts.view(name)) is not None:
            self._form.begin(view.spec)
            self._set_name(name)
            self._open()

    def change(self, name: str) -> None:
        """Open the wizard to edit the settings of the listed server `name`."""
        if (view := self._hosts.view(name)) is not None:
            self._form.begin(view.spec)
            self._set_name("")
            self.set_title(f"Edit {name}")
            self._open()

    def _open(self) -> None:
        self._tasks.run("known", self._hosts.known(), self._form.set_known)
        self._show()
        self.open()
        if not self._name:
            self._form.address.line.setFocus()

    def _set_name(self, name: str) -> None:
        self._name, self._refused = name, None
        self._requested = self._installing = self._started = False
        self.set_title(f"Add {name}" if name else "Add a server")

    # User actions

    def _press(self) -> None:
        """Perform the primary action of the current step."""
        match self._shown:
            case "address":
                self._connect()
            case "report":
                self._act("install")
            case "ready":
                self.close_sheet()
            case "failed":
                self._act("install" if self._installing else "connect")
            case _:
                self._stop()

    def _connect(self) -> None:
        """Add the server and connect, once: Enter in an editable combo box is reported twice."""
        spec = self._form.spec() if self._shown == "address" else None
        if spec is not None:
            self._set_name(spec.name)
            self._ask()
            self._hosts.add(spec, lambda _: None, self._not_taken)

    def _act(self, action: HostAction) -> None:
        self._installing = action == "install"
        self._ask()
        self._hosts.act(self._name, action, lambda _: None, self._not_taken)

    def _ask(self) -> None:
        self._requested, self._refused, self._started = True, None, True
        self._stale.start()
        self._show()

    def _stop(self) -> None:
        """Disconnect to cancel the operation, and go back; transferred files are kept."""
        self._installing = self._started = False
        self._hosts.cancel_connection(self._name)
        self._step_back()

    def close_sheet(self) -> None:
        """Close; a connection that was begun here and has not succeeded is cancelled. An
        installation continues."""
        if self._cancels:
            self._hosts.cancel_connection(self._name)
            self._session.notice.emit(f"Connecting to {self._name} was cancelled.")
            self._set_name("")
        super().close_sheet()

    @property
    def _cancels(self) -> bool:
        return bool(self._name) and self._started and self._now() in ("waiting", "failed")

    def _step_back(self) -> None:
        if self._cancels:
            self._hosts.cancel_connection(self._name)
        view = self._hosts.view(self._name)
        self._form.begin(view.spec if view else None)
        self._set_name("")
        self._show()
        self._form.address.line.setFocus()

    def _not_taken(self, problem: Problem) -> None:
        self._requested, self._refused = False, problem
        self._show()

    def _train_here(self, on: bool) -> None:
        path = self._session.project.path
        self._hosts.choose(path, self._name if on else "")

    # State

    @Slot()
    def _hosts_changed(self) -> None:
        view = self._hosts.view(self._name)
        if view is not None and view.state in (*UNDER_WAY, "connected"):
            self._requested = False
            self._installing = self._installing or view.state == "installing"
        if self.is_open() and self._name:
            self._show()

    @Slot()
    def _waited(self) -> None:
        self._requested = False
        self._hosts_changed()

    def _now(self) -> Step | Literal["address"]:
        if not self._name:
            return "address"
        if self._refused is not None:
            return "failed"
        if self._requested:
            return "installing" if self._installing else "waiting"
        step = step_of(self._hosts.view(self._name))
        return "installing" if step == "waiting" and self._installing else step

    def _show(self) -> None:
        self._shown = step = self._now()
        view = self._hosts.view(self._name)
        live = step in ("waiting", "installing", "failed")
        self._step.set_words(TITLES["waiting" if step == "failed" else step])
        for part, shown in (
            (self._form, step == "address"),
            (self._live, live),
            (self._report, step == "report"),
            (self._ready, step == "ready"),
            (self._again, step == "report"),
            (self._back, step in ("report", "failed")),
            (self._later, step == "report"),
        ):
            part.setVisible(shown)
        self._note.setVisible(False)
        if live:
            self._show_live(view, step)
        elif step == "report" and view is not None:
            self._show_report(view)
        elif step == "ready" and view is not None:
            self._show_ready(view)
        self._show_main(view, step)

    def _show_live(self, view: HostView | None, step: str) -> None:
        if step == "failed":
            problem = self._refused or (view.problem if view else None)
            self._live.show_problem(self._hosts.words(self._name).text, problem)
        else:
            title = (
                f"Installing on {self._name}"
                if self._installing
                else (f"Uploading to {self._name}")
            )
            self._live.show_view(title, view, self._hosts.words(self._name).text)

    def _show_report(self, view: HostView) -> None:
        assert view.report is not None
        self._report.show_report(view.report)
        refused = unfit(view.report)
        words = refused and f"No engine can run on this server. {refused}"
        if self._installing and not words:
            words = CUT_OFF
        self._note.set_words(words)
        self._note.setVisible(bool(words))

    def _show_ready(self, view: HostView) -> None:
        self._installing = False
        path = self._session.project.path
        here = bool(path) and self._hosts.chosen(path) == self._name
        self._ready.show_view(view, self._session.project.name, here)

    def _show_main(self, view: HostView | None, step: str) -> None:
        report = view.report if view else None
        offer = install_offer(report)
        words, icon, price, kind = {
            "address": ("Connect", "plug-zap", "", "primary"),
            "report": (offer.words, offer.icon, offer.price, "primary"),
            "failed": ("Retry", "refresh-cw", "", "primary"),
            "ready": ("Done", "check", "", "primary"),
        }.get(step, ("Cancel", "x", "", "outlined"))
        self._main.set_words(words, price)
        self._main.set_icon(icon)
        self._main.set_kind(kind)
        self._main.setEnabled(not (step == "report" and report and unfit(report)))

    # Building

    def _build(self) -> None:
        add(
            self.body,
            self._step,
            self._note,
            self._form,
            self._live,
            self._report,
            self._ready,
            STRETCH,
        )
        add(self.foot, self._back, self._later, STRETCH, self._again, self._main)

    def _wire(self) -> None:
        self._hosts.changed.connect(self._hosts_changed)
        self._stale.timeout.connect(self._waited)
        self._form.entered.connect(self._connect)
        self._main.clicked.connect(self._press)
        self._back.clicked.connect(self._step_back)
        self._again.clicked.connect(lambda: self._act("connect"))
        self._later.clicked.connect(self.close_sheet)
        self._ready.chosen.clicked.connect(self._train_here)


class LiveStep(QWidget):
    """Step that shows the current operation, its progress and its problem."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._title = Text("", "body", 600)
        self._words = Text("", "label", 400, "muted", wrap=True)
        self._hint = Text("", "label", 400, "muted", wrap=True, selectable=True)
        self._meter = Meter("Progress", "accent", 4)
        self._kept = Text("", "caption", tone="faint", wrap=True)
        vbox(
            self._title,
            self._words,
            self._hint,
            self._meter,
            self._kept,
            parent=self,
            margins=(0, 8, 0, 0),
            spacing=6,
        )

    def show_view(self, title: str, view: HostView | None, words: str) -> None:
        """Show the current operation of a server below the heading `title`: its progress or, if it
        reports none (or `view` is None), the text `words`."""
        tick = view.tick if view else None
        self._title.set_words(title)
        self._title.set_tone("text")
        self._words.set_words(tick_words(tick) if tick else words[:1].upper() + words[1:])
        self._words.set_tone("muted")
        share = share_of(tick)
        self._hint.setVisible(False)
        self._meter.setVisible(share is not None)
        self._meter.set_share(share or 0.0)
        installing = view is not None and view.state == "installing"
        self._kept.set_words(GOES_ON if installing else NOTHING_YET)
        self._kept.setVisible(True)

    def show_problem(self, words: str, problem: Problem | None) -> None:
        """Show a failure below the heading `words`, for example the time until the next attempt;
        `problem` has message and hint (None: no details)."""
        self._title.set_words(words[:1].upper() + words[1:])
        self._title.set_tone("bad")
        self._title.setWordWrap(True)
        self._words.set_words(problem.message if problem else "")
        self._words.set_tone("text")
        self._hint.set_words(problem.hint if problem else "")
        self._hint.setVisible(bool(problem and problem.hint))
        self._meter.setVisible(False)
        self._kept.setVisible(False)


class ReadyStep(QWidget):
    """Final step: engine of the server, and whether this project trains there."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._title = Text("", "title", 600, wrap=True)
        self._facts = KeyValues(1)
        self.chosen = Toggle("Train this project here")
        self._words = Text("", "label", 400, "muted", wrap=True)
        vbox(
            self._title,
            self._facts,
            self.chosen,
            self._words,
            parent=self,
            margins=(0, 8, 0, 0),
            spacing=12,
        )

    def show_view(self, view: HostView, project: str, here: bool) -> None:
        """Show the engine of a server; `here`: the project (empty: none) trains there."""
        name = view.spec.name
        self._title.set_words(f"{name} is ready")
        facts = [("Device", view.info.device if view.info else "")]
        if view.info is not None:
            facts.append(("Engine", view.info.version))
        if view.report is not None:
            facts.append(("Folder", view.report.folder))
        self._facts.set_values(facts)
        self.chosen.setVisible(bool(project))
        self.chosen.setChecked(here)
        words = (
            f"{project} will train on {name}. To change this, choose another machine in the header."
        )
        none = f"Open a project and choose {name} in the header to train on it."
        self._words.set_words(words if project else none)
