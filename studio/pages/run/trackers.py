"""Trackers card: upload state of each tracker, and a button for missing data."""

import asyncio

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QWidget

from engine.protocol.config.tracking import TrackerList, TrackerView, sentence_of
from engine.protocol.records.runs import ACTIVE_STATES
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.widgets.cards.card import Card
from studio.widgets.controls.buttons import Button, IconButton
from studio.widgets.layouts import hbox
from studio.widgets.tables.status_dot import Dot
from studio.widgets.text.text import Text

LOOK_S = 2.0
DOTS = {
    "opening": "connecting",
    "in_step": "connected",
    "behind": "connecting",
    "failing": "reconnecting",
    "missing": "gone",
    "unsent": "gone",
}
QUIET = ("opening", "in_step", "behind")


class TrackersCard(Card):
    """Card with the trackers of the run; polls while visible, hidden without trackers."""

    def __init__(self, session: Session, tasks: TaskScope, parent: QWidget | None = None) -> None:
        super().__init__("Trackers", parent=parent)
        self._session, self._tasks = session, tasks
        self._lines: list[TrackerLine] = []
        self._looks = False
        self._send = Button("Upload missing data", "outlined", icon="upload", height=28)
        self._send.clicked.connect(session.track)
        self.body.setSpacing(8)
        self.body.addWidget(self._send)
        session.run.selected.connect(self._again)
        session.runs_changed.connect(self._again)
        self.hide()

    def look(self) -> None:
        """Start polling the state of the trackers."""
        self._looks = True
        self._again()

    def rest(self) -> None:
        """Stop polling while the card is hidden."""
        self._looks = False
        self._tasks.cancel("trackers")

    def _again(self) -> None:
        run = self._session.run.summary
        if not self._looks:
            return
        if run is None or not self._session.connected:
            self.show_trackers(TrackerList())
            return
        self._tasks.run("trackers", self._watch(run.id), failed=lambda _: self.hide())

    async def _watch(self, run_id: str) -> None:
        while True:
            found = await self._session.client.trackers(run_id)
            self.show_trackers(found)
            run = self._session.runs.summary(run_id)
            living = run is not None and run.state in ACTIVE_STATES
            if not (found.sending or (living and found.trackers)):
                return
            await asyncio.sleep(LOOK_S)

    def show_trackers(self, found: TrackerList) -> None:
        while len(self._lines) < len(found.trackers):
            line = TrackerLine()
            self._lines.append(line)
            self.body.insertWidget(len(self._lines) - 1, line)
        for place, line in enumerate(self._lines):
            line.setVisible(place < len(found.trackers))
        for line, view in zip(self._lines, found.trackers, strict=False):
            line.show_tracker(view)
        unsent = any(view.state == "unsent" for view in found.trackers)
        self._send.setVisible(unsent and not found.sending)
        self.setVisible(bool(found.trackers))


class TrackerLine(QWidget):
    """Row of a tracker: state, sentence, and link to the run."""

    def __init__(self) -> None:
        super().__init__()
        self._url = ""
        self._dot = Dot()
        self._words = Text("", "label", 400, "muted", wrap=True)
        self._open = IconButton("external-link", "Open the run in the tracker", size=20)
        self._open.clicked.connect(lambda: QDesktopServices.openUrl(QUrl(self._url)))
        line = hbox(parent=self, spacing=8)
        line.addWidget(self._dot, 0, Qt.AlignmentFlag.AlignTop)
        line.addWidget(self._words, 1)
        line.addWidget(self._open, 0, Qt.AlignmentFlag.AlignTop)

    def show_tracker(self, view: TrackerView) -> None:
        self._dot.set_state(DOTS[view.state])
        self._dot.setAccessibleName(view.state.replace("_", " "))
        self._words.set_words(sentence_of(view))
        self._words.set_tone("muted" if view.state in QUIET else "text")
        self._url = view.url if view.url.startswith(("http://", "https://")) else ""
        self._open.setVisible(bool(self._url))
