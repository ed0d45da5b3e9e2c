"""Bar shown while the server of an active run is disconnected or its mirror is behind."""

import time
from datetime import datetime

from PySide6.QtCore import QPointF, Slot
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QWidget

from engine.protocol.records.runs import ACTIVE_STATES, RunSummary
from engine.protocol.requests.remote import HostView
from studio.services.servers import UNDER_WAY
from studio.services.session import Session
from studio.store.runs.state import RunState
from studio.store.servers.servers import BEHIND, behind_words, words_of
from studio.theme.plain_tooltips import set_tip
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import hbox
from studio.widgets.painting import paint
from studio.widgets.text.phrase import Phrase, Span

GOES_ON = "  ·  The run continues on the server. Its events appear after reconnecting."
JUDGE_WAITS = " Judge calls wait until then."


class AwayBar(QWidget):
    """Connection notice for the selected run, with a Reconnect button."""

    def __init__(self, session: Session, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session, self._hosts = session, session.hosts
        self._name = ""
        self.setFixedHeight(44)
        self._words = Phrase((), "body")
        self._again = Button("Reconnect now", "outlined", icon="plug-zap")
        self._again.clicked.connect(lambda: self._hosts.act(self._name, "connect"))
        hbox((self._words, 1), self._again, parent=self, margins=(40, 0, 8, 0), spacing=8)
        session.hosts.changed.connect(self._show)
        session.run.changed.connect(self._show)
        session.run.selected.connect(self._show)
        self.hide()

    def words(self) -> str:
        """Return the text of the notice."""
        return self._words.words()

    @Slot()
    def _show(self) -> None:
        run, state = self._session.run.summary, self._session.run.state
        spans = self._spans(run, state) if run is not None and run.host else []
        self.setVisible(bool(spans))
        if spans and "".join(span.words for span in spans) != self.words():
            self._words.set_spans(spans)
            self.setAccessibleName(self.words())
            set_tip(self, self.words())

    def _spans(self, run: RunSummary, state: RunState) -> list[Span]:
        view = self._hosts.view(run.host)
        self._name = run.host
        if run.state not in ACTIVE_STATES or view is None or not self._session.connected:
            return []
        busy = view.state in UNDER_WAY
        self._again.setVisible(view.state != "connected")
        self._again.set_busy("Connecting…" if busy else None)
        if view.state == "connected":
            return catching_up(view)
        waits = judge_waits(state)
        return away_spans(view, self._hosts.store.away_since(run.host), run, waits, time.time())

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint.box(painter, self.rect(), "surface", "border-strong", 8)
            paint.icon(painter, QPointF(13, 13), "unplug", "warn", 18)


def judge_waits(state: RunState) -> bool:
    """Return whether the run's judge calls are sent from this machine, with its API keys."""
    spec = state.spec
    return bool(
        spec and spec.keys_at_home and spec.config.judge.enabled and spec.config.judge.models
    )


def away_spans(
    view: HostView, since: float | None, run: RunSummary, waits: bool, now: float
) -> list[Span]:
    """Build the notice that the server of an active run is disconnected. `since`: Unix time in
    seconds (None: unknown), `waits`: the run's judge calls wait for the connection."""
    name = view.spec.name
    if since is not None:
        begin = f"{name} has been disconnected since {_clock(since)}"
    else:
        begin = f"{name} is disconnected; the last event is from {_clock(run.changed_at)}"
    spans = [Span(begin, "text", 600)]
    if view.state in ("asking", "stopped"):
        spans.append(Span(f" ({words_of(view, now).text})", "warn"))
    spans.append(Span(GOES_ON))
    return [*spans, Span(JUDGE_WAITS, "judge")] if waits else spans


def catching_up(view: HostView) -> list[Span]:
    """Build the notice for a server whose local mirror is behind; empty while it is up to date."""
    if view.behind <= BEHIND:
        return []
    return [
        Span(f"Syncing with {view.spec.name}", "text", 600),
        Span(f"  ·  {behind_words(view)}; charts and lists update as data arrives."),
    ]


def _clock(at: float) -> str:
    then = datetime.fromtimestamp(at)
    day = "" if then.date() == datetime.now().date() else f"{then.day} {then:%b}, "
    return f"{day}{then:%H:%M}"
