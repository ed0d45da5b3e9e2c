"""Sheet of a server: state, hardware, engines, own runs and actions."""

import time
from functools import partial

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QWidget

from engine.protocol.requests.remote import HostView
from studio.pages.offer_line import OfferLine
from studio.pages.servers.report import ReportView
from studio.runtime.tasks import TaskScope
from studio.services.notifications import Choice, ask
from studio.services.session import Session
from studio.store.offers import Offer
from studio.store.runs.gpus import card_words
from studio.store.runs.status_words import run_words
from studio.store.servers.server_rows import Row, all_offers, engine_lines, removal_words, row_of
from studio.store.servers.servers import BEHIND, behind_words
from studio.text import formatting
from studio.theme.plain_tooltips import set_tip
from studio.widgets.cards.key_values import KeyValues
from studio.widgets.cards.sheet import Sheet
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import STRETCH, add, hbox, vbox
from studio.widgets.tables.meter import Meter
from studio.widgets.tables.status_dot import Dot
from studio.widgets.text.text import Text

MOST_RUNS = 8


class HostSheet(Sheet):
    """Server sheet: `show_host(name)`; emits `change_wanted(name)` and `install_wanted(name)`."""

    change_wanted = Signal(str)
    install_wanted = Signal(str)

    def __init__(self, session: Session, tasks: TaskScope, host: QWidget) -> None:
        super().__init__("Server", host)
        self._session, self._hosts, self._tasks = session, session.hosts, tasks
        self._name = ""
        self._dot, self._words = Dot(), Text("", "body", 500, wrap=True)
        self._problem = Text("", "label", 400, "bad", wrap=True, selectable=True)
        self._meter = Meter("Progress", "accent", 4)
        self._facts = KeyValues(1)
        self._engines = Section("Installed engines")
        self._engine_values = KeyValues(1)
        self._engines.column.addWidget(self._engine_values)
        self._runs = Section("Your runs on this server")
        self._shown_runs: tuple[tuple[str, str, bool], ...] = ()
        self._report = ReportView()
        self._actions = OfferLine(), OfferLine()
        self._ending = OfferLine()
        self._edit = Button("Edit", "quiet", icon="pencil", height=28)
        set_tip(self._edit, "Edit address, connection, folder or engine")
        self._build()
        self._hosts.changed.connect(self._show_if_open)
        session.runs_changed.connect(self._show_if_open)

    def show_host(self, name: str) -> None:
        self._name = name
        self.set_title(name)
        self._show()
        self.open()

    @Slot()
    def _show_if_open(self) -> None:
        if self.is_open():
            self._show()

    def _show(self) -> None:
        view = self._hosts.view(self._name)
        if view is None:
            self.close_sheet()
            return
        row = row_of(view, time.time())
        self._show_state(view, row)
        self._show_engines(view)
        self._show_runs(view)
        self._report.setVisible(view.report is not None)
        if view.report is not None:
            self._report.show_report(view.report)
        self._show_offers(view)

    def _show_state(self, view: HostView, row: Row) -> None:
        self._dot.set_state(row.words.dot)
        self._words.set_words(row.words.text[:1].upper() + row.words.text[1:])
        problem = view.problem
        words = f"{problem.message} {problem.hint}".strip() if problem else ""
        self._problem.set_words(words)
        self._problem.set_tone("bad" if view.state == "stopped" else "warn")
        self._problem.setVisible(bool(words))
        share = row.progress[1] if row.progress else None
        self._meter.setVisible(share is not None)
        self._meter.set_share(share or 0.0)
        self._facts.set_values(_facts(view))
        self._facts.setFixedHeight(self._facts.sizeHint().height())

    def _show_engines(self, view: HostView) -> None:
        lines = engine_lines(view)
        self._engines.setVisible(bool(lines))
        self._engine_values.set_values(lines)
        self._engine_values.setFixedHeight(self._engine_values.sizeHint().height())
        words = (
            "The engine's source code differs from that on this machine." if view.outdated else ""
        )
        self._engines.set_note(words)

    def _show_runs(self, view: HostView) -> None:
        runs = view.runs[:MOST_RUNS]
        known = self._session.runs.known
        rows = tuple(
            (run.id, f"{run.project} / {run.name} · {run_words(run).text}", known(run.id))
            for run in runs
        )
        self._runs.setVisible(bool(rows))
        if rows == self._shown_runs:
            return
        self._shown_runs = rows
        self._runs.clear()
        for run_id, words, here in rows:
            button = Button(words, "quiet", icon="activity", height=28)
            button.clicked.connect(partial(self._open_run, run_id))
            button.setEnabled(here)
            set_tip(button, "" if here else "The project of this run is not on this machine")
            self._runs.add_left(button)
        more = len(view.runs) - len(runs)
        self._runs.set_note(f"and {formatting.plural(more, 'more run')}" if more else "")

    def _open_run(self, run_id: str, _: bool = False) -> None:
        run = self._session.runs.summary(run_id)
        if run is not None:
            self.close_sheet()
            self._session.open_run(run)

    # Actions

    def _show_offers(self, view: HostView) -> None:
        for line, offers in zip((*self._actions, self._ending), all_offers(view), strict=True):
            self._connect(line, offers)

    def _connect(self, line: OfferLine, offers: tuple[Offer, ...]) -> None:
        for button in line.show_offers(offers, self._name):
            button.clicked.connect(partial(self._press, button.property("verb")))

    def _press(self, verb: str, _: bool = False) -> None:
        if verb in ("remove", "forget", "stop_engine"):
            self._tasks.run("sure", self._sure(verb))
        elif verb == "install" and not self._installed():
            self.close_sheet()
            self.install_wanted.emit(self._name)
        else:
            self._hosts.act(self._name, verb)  # type: ignore[arg-type]

    def _installed(self) -> bool:
        view = self._hosts.view(self._name)
        return bool(view and view.report and any(one.current for one in view.report.engines))

    async def _sure(self, verb: str) -> None:
        """Perform a destructive action after a confirmation that lists its effects."""
        view, name = self._hosts.view(self._name), self._name
        if view is None:
            return
        title, words, does = {
            "remove": (f"Remove Atelier from {name}?", removal_words(view), "Remove Atelier"),
            "forget": (f"Remove {name} from the list?", FORGET_WORDS, "Remove"),
            "stop_engine": (f"Stop the engine on {name}?", STOP_WORDS, "Stop the engine"),
        }[verb]
        deletes = verb == "remove"  # the other two can be taken back
        choices = [Choice("", "Cancel"), Choice("yes", does, "danger", default=not deletes)]
        answer, _ = await ask(self.window(), title, words, choices)
        if answer == "yes":
            self._hosts.act(name, verb)  # type: ignore[arg-type]

    # Building

    def _build(self) -> None:
        state = hbox(self._dot, (self._words, 1), spacing=8)
        add(self.body, state, self._problem, self._meter)
        for line in self._actions:
            box = hbox(line, STRETCH)
            self.body.addLayout(box)
        add(self.body, self._facts, self._engines, self._runs, self._report, STRETCH)
        add(self.foot, self._ending, STRETCH, self._edit)
        self._edit.clicked.connect(self._change)

    def _change(self) -> None:
        self.close_sheet()
        self.change_wanted.emit(self._name)


FORGET_WORDS = (
    "The server and its mirrored data stay unchanged. Not possible while your "
    "runs are active there."
)
STOP_WORDS = (
    "Runs stop at the last stored step and can be resumed. The next connection restarts the engine."
)


def _facts(view: HostView) -> list[tuple[str, str]]:
    facts = [("Address", view.spec.address)]
    if view.info is not None:
        facts += [("Device", view.info.device), ("Engine", view.info.version)]
        facts += [(f"GPU {card.index} now", card_words(card)) for card in view.info.cards]
        facts.append(("Free disk now", formatting.size(view.info.free_bytes or None)))
    if view.latency_s is not None:
        facts.append(("Latency", formatting.duration(view.latency_s)))
    if view.behind > BEHIND:
        facts.append(("Mirror", behind_words(view)))
    return facts


class Section(QWidget):
    """Section with a small heading, content and an optional note."""

    def __init__(self, title: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        whole = vbox(Text(title, "label", 600), parent=self, margins=(0, 4, 0, 0), spacing=4)
        self.column = vbox(spacing=0)
        whole.addLayout(self.column)
        self._note = Text("", "caption", tone="faint", wrap=True)
        whole.addWidget(self._note)

    def set_note(self, words: str) -> None:
        self._note.set_words(words)
        self._note.setVisible(bool(words))

    def add_left(self, widget: QWidget) -> None:
        """Append a widget at its own width, left-aligned."""
        line = hbox(widget, STRETCH)
        self.column.addLayout(line)

    def clear(self) -> None:
        while (item := self.column.takeAt(0)) is not None:
            line = item.layout()
            first = line.takeAt(0) if line is not None else None
            if first is not None and (widget := first.widget()) is not None:
                widget.hide()
                widget.deleteLater()
