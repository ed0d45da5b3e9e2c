"""Bar of the review queue: progress, why the group is in the queue, skip and leave."""

from PySide6.QtCore import QPointF, Signal
from PySide6.QtGui import QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from engine.protocol.requests.review import ReviewItem
from studio.widgets.controls.buttons import Button, IconButton
from studio.widgets.layouts import hbox
from studio.widgets.painting import paint
from studio.widgets.text.text import Text

NARROW_PX = 560


class QueueBar(QWidget):
    """Bar shown above a group of the review queue; emits `next_wanted` and `leave_wanted`."""

    next_wanted = Signal()
    leave_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedHeight(36)
        self._place = Text("", "label", 600)
        self._reason = Text("", "label", 400, "muted", elide=True)
        self._next = Button("Skip", "outlined", icon="skip-forward", key="Q", height=24)
        self._leave = IconButton("x", "Leave the review queue  Esc")
        parts = (self._place, (self._reason, 1), self._next, self._leave)
        hbox(*parts, parent=self, margins=(38, 0, 6, 0), spacing=12)
        self._next.clicked.connect(self.next_wanted)
        self._leave.clicked.connect(self.leave_wanted)
        self.hide()

    def show_item(self, item: ReviewItem, number: int, total: int) -> None:
        """Show that a group, not labelled yet, is `number` (from 1) of `total` in the review queue,
        and the reason why it is in the queue (`item`)."""
        self._place.set_words(f"Review queue  group {number} of {total}")
        self._reason.set_words(item.words)
        self.setAccessibleName(f"Review queue, group {number} of {total}: {item.words}")
        self.set_labelled(False)
        self.show()

    def set_labelled(self, labelled: bool) -> None:
        """Set whether the group shown is labelled: the button then continues instead of skips."""
        self._next.set_words("Next" if labelled else "Skip")

    def words(self) -> str:
        """Progress and reason on display."""
        return f"{self._place.words()}: {self._reason.words()}"

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._next.set_icon_only(self.width() < NARROW_PX)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint.box(painter, self.rect(), "human-soft", "human-line", 8)
            paint.icon(painter, QPointF(13, 10), "list-checks", "human", 16)
