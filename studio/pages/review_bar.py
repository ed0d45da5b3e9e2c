"""Review bar: the run waits for labels until the timeout or until the user resumes it."""

import time

from PySide6.QtCore import QPointF, QTimer, Signal, Slot
from PySide6.QtGui import QHideEvent, QPaintEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QWidget

from engine.protocol.events.run import ReviewOpened
from engine.protocol.problems import Problem
from studio.runtime.tasks import command_job
from studio.services.session import Session
from studio.store.runs.state import RunState
from studio.text import formatting
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import hbox
from studio.widgets.painting import paint
from studio.widgets.text.phrase import Phrase, Span

TICK_MS, NARROW_PX, NARROWEST_PX = 1000, 860, 600


class ReviewBar(QWidget):
    """Bar shown while the selected run waits for review; emits `groups_wanted(step)`."""

    groups_wanted = Signal(int)

    def __init__(self, session: Session, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self._step = 0
        self._sent: tuple[str, int] | None = None
        """Run and step whose review was finished, until the engine confirms or refuses it."""
        self.setFixedHeight(44)
        self._words = Phrase((), "body")
        self._open = Button("Open the first group", "outlined", icon="user-round-check")
        self._done = Button("Finish review", "outlined", icon="play")
        hbox(
            (self._words, 1), self._open, self._done, parent=self, margins=(40, 0, 8, 0), spacing=8
        )
        self._tick = QTimer(self)
        self._tick.setInterval(TICK_MS)
        self._tick.timeout.connect(self._show)
        self._open.clicked.connect(lambda: self.groups_wanted.emit(self._step))
        self._done.clicked.connect(self._go_on)
        session.run.changed.connect(self._show)
        session.run.selected.connect(self._show)
        session.tasks.failed.connect(self._failed)
        self.hide()

    def words(self) -> str:
        """Return the text of the notice."""
        return self._words.words()

    @Slot()
    def _show(self) -> None:
        state = self._session.run.state
        review = state.review
        if self.isHidden() == (review is not None):
            self.setVisible(review is not None)
        if review is None and self._sent is not None and self._sent[0] == state.run_id:
            self._sent = None  # a resumed run can wait at the same step again
        if review is not None:
            self._step = review.step
            going = self._sent == (state.run_id, review.step)
            if going != self._done.is_busy():
                self._done.set_busy("Resuming…" if going else None)
            spans = review_words(review, labelled_of(state, review.step), time.time())
            if "".join(span.words for span in spans) != self._words.words():
                self._words.set_spans(spans)
                self.setAccessibleName(self._words.words())

    def _go_on(self) -> None:
        self._sent = (self._session.run.run_id, self._step)
        self._show()
        self._session.command("reviewed")

    @Slot(str, object)
    def _failed(self, job: str, problem: Problem) -> None:
        """Re-enable the button after a failed request."""
        if self._sent is not None and job == command_job("reviewed", self._sent[0]):
            self._sent = None
            self._show()

    def showEvent(self, event: QShowEvent) -> None:
        self._tick.start()

    def hideEvent(self, event: QHideEvent) -> None:
        self._tick.stop()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._open.set_icon_only(self.width() < NARROW_PX)
        self._done.set_icon_only(self.width() < NARROWEST_PX)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint.box(painter, self.rect(), "human-soft", "human-line", 8)
            paint.icon(painter, QPointF(13, 13), "hand", "human", 18)


def labelled_of(state: RunState, step: int) -> tuple[int, int]:
    """Return the number of labelled groups of a training step, and of all its groups."""
    labelled = {group for split, at, group in state.labelled if (split, at) == ("train", step)}
    planned = set(state.flight) if state.step == step else set()
    return len(labelled), len(planned | labelled)


def review_words(review: ReviewOpened, labelled: tuple[int, int], now: float) -> list[Span]:
    """Build the notice of a review; `labelled`: labelled and all groups, `now`: Unix seconds."""
    spans = [Span(f"Step {review.step} waits for your review", "text", 600)]
    if review.until is not None:
        left = max(0.0, review.until - now)
        does = "resumes" if review.then == "train" else "pauses"
        when = f"in {formatting.duration(max(1.0, float(round(left))))}" if left else "now"
        spans.append(Span(f"  ·  {does} automatically {when}"))
    else:
        spans.append(Span("  ·  waits until you finish the review"))
    spoken, total = labelled
    if total:
        spans.append(
            Span(f"  ·  {spoken} of {formatting.plural(total, 'group')} labelled", "human")
        )
    return spans
