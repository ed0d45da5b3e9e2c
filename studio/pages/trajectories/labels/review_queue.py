"""Review queue of a page: opens the groups whose label teaches most, one after the other.

Emits `group_wanted(split, step, group, blind)`, and `left` at the end or when the bar is closed."""

from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QMenu, QWidget

from engine.protocol.records.labels import Label
from engine.protocol.records.runs import Split
from engine.protocol.requests.review import (
    REASONS,
    ReviewItem,
    ReviewQuery,
    ReviewQueue,
    ReviewReason,
)
from studio.pages.trajectories.labels.queue_bar import QueueBar
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.text import formatting

Place = tuple[Split, int, int]
LENGTH = 20
"""Number of groups that are fetched at once."""
JOB = "review_queue"


@dataclass(frozen=True)
class QueueOptions:
    """Choice of the groups of a queue. `reason` None: all reasons; `others`: groups that only other
    annotators have labelled; `blind`: hide scores and reasons until a label is applied."""

    reason: ReviewReason | None = None
    others: bool = False
    blind: bool = False


class ReviewQueueController(QObject):
    """Queue of one page; `host` owns it and its `bar`, which the page lays out."""

    group_wanted = Signal(str, int, int, bool)
    left = Signal()

    def __init__(self, session: Session, tasks: TaskScope, host: QWidget) -> None:
        super().__init__(host)
        self._session, self._tasks = session, tasks
        self.bar = QueueBar(host)
        self.options = QueueOptions()
        self._items: list[ReviewItem] = []
        self._at = 0
        self._labelled = False
        self.bar.next_wanted.connect(self.advance)
        self.bar.leave_wanted.connect(self._end)

    @property
    def active(self) -> bool:
        """Whether a group of the queue is shown."""
        return bool(self._items)

    def start(self) -> None:
        """Fetch the queue of the selected run, and open its first group."""
        run_id = self._session.run.run_id
        if not run_id:
            return
        chosen = self.options
        if chosen.others and not self._session.annotator:
            self._session.notice.emit("First enter your name under Settings → Labels.")
            return
        query = ReviewQuery(
            reasons=(chosen.reason,) if chosen.reason else (),
            annotator=self._session.annotator if chosen.others else "",
            limit=LENGTH,
        )

        async def ask() -> ReviewQueue:
            return await self._session.client.review_queue(run_id, query)

        def show(queue: ReviewQueue) -> None:
            if run_id == self._session.run.run_id:
                self._begin(queue)

        self._tasks.run(JOB, ask(), show)

    def advance(self) -> None:
        """Open the next group of the queue; after the last one, end the queue. If no queue is
        active, start it."""
        if not self.active:
            self.start()
            return
        self._at += 1
        if self._at < len(self._items):
            self._open()
        else:
            count = formatting.plural(len(self._items), "group")
            self._end()
            self._session.notice.emit(f"End of the review queue: {count} shown.")

    def leave(self) -> bool:
        """End the review queue; the page still shows the current group. Returns False if no queue
        is active."""
        was = self.active
        self._tasks.cancel(JOB)
        self._items, self._at = [], 0
        self.bar.hide()
        return was

    def _end(self) -> None:
        self.leave()
        self.left.emit()

    def follow(self, place: Place | None) -> None:
        """End the review queue if the page no longer shows its current group. `place`: split, step
        and number of the group that the page shows (None: no group)."""
        if self.active and place != self._place():
            self.leave()

    def committed(self, label: Label) -> None:
        """Handle a stored or undone label of the queue's current group: open the next group, but
        after a blind or undone label only update the bar (blind: the page first shows how far the
        judge agrees). Labels of other groups are ignored."""
        if not self.active or (label.split, label.step, label.group) != self._place():
            return
        self._labelled = label.undone is None
        if self._labelled and not label.blind:
            self.advance()
        else:
            self.bar.set_labelled(self._labelled)

    def advance_if_labelled(self) -> bool:
        """Open the queue's next group if the current one was labelled; returns False otherwise."""
        if self.active and self._labelled:
            self.advance()
            return True
        return False

    def menu(self, parent: QWidget) -> QMenu:
        """Build the menu that starts a queue, with the choice of its groups."""
        menu = QMenu(parent)
        menu.aboutToHide.connect(menu.deleteLater)
        self._add(menu, "All reasons", replace(self.options, reason=None, others=False))
        menu.addSeparator()
        for name, words in REASONS.items():
            self._add(menu, words, replace(self.options, reason=name, others=False))
        menu.addSeparator()
        words = "Labelled only by other annotators"
        self._add(menu, words, replace(self.options, reason=None, others=True))
        menu.addSeparator()
        blind = menu.addAction("Blind: hide scores until the label is applied")
        blind.setCheckable(True)
        blind.setChecked(self.options.blind)
        blind.triggered.connect(self._set_blind)
        return menu

    def _add(self, menu: QMenu, words: str, options: QueueOptions) -> None:
        action = menu.addAction(words)
        action.triggered.connect(lambda: self._start_with(options))

    def _start_with(self, options: QueueOptions) -> None:
        self.options = options
        self.start()

    def _set_blind(self, blind: bool) -> None:
        self.options = replace(self.options, blind=blind)

    def _begin(self, queue: ReviewQueue) -> None:
        if not queue.items:
            self.leave()
            self._session.notice.emit(_empty_words(self.options))
            return
        self._items, self._at = queue.items, 0
        self._open()

    def _open(self) -> None:
        item = self._items[self._at]
        self._labelled = False
        self.bar.show_item(item, self._at + 1, len(self._items))
        self.group_wanted.emit(item.split, item.step, item.group, self.options.blind)

    def _place(self) -> Place:
        item = self._items[self._at]
        return item.split, item.step, item.group


def _empty_words(options: QueueOptions) -> str:
    if options.others:
        return "No group is left that only other annotators have labelled."
    if options.reason:
        return f"No unlabelled group has the reason “{REASONS[options.reason]}”."
    return "No unlabelled group is left for which a label would be informative."
