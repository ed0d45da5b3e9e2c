"""Card of an error: what stopped and why, what is safe, and up to three remedies with their
cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QPainterPath, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QWidget

from studio.theme.theme import theme
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import add, hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.tables.meter import paint_meter
from studio.widgets.text.phrase import Phrase
from studio.widgets.text.text import Text

_METER_FROM_PX = 940


@dataclass(frozen=True)
class Remedy:
    """Remedy: action, cost in one line, button label, measured effect (`share`, `figure`)."""

    key: str
    title: str
    cost: str
    button: str
    icon: str = "wrench"
    share: float | None = None
    figure: str = ""


class ErrorCard(QWidget):
    """Error: `ErrorCard(title, words, remedies, foot)`; the first remedy is the primary button."""

    remedy_chosen = Signal(str)
    log_requested = Signal()
    report_requested = Signal()
    place_requested = Signal()

    def __init__(
        self,
        title: str,
        words: str,
        remedies: Sequence[Remedy] = (),
        foot: str = "",
        when: str = "",
        parent: QWidget | None = None,
        *,
        log: bool = True,
        place: str = "",
    ) -> None:
        """Create the card; `log` is False if there is no log to show. `place` names the file and
        line of the failure, `agent.py:12`, and gets a button."""
        super().__init__(parent)
        self._log, self._place = log, place
        self.setAccessibleName(f"Problem: {title}. {words}")
        column = vbox(parent=self, margins=1, spacing=0)
        self._head = self._build_head(title, words, when)
        column.addWidget(self._head)
        for index, remedy in enumerate(remedies[:3]):
            row = _RemedyRow(remedy, primary=index == 0)
            row.chosen.connect(self.remedy_chosen)
            column.addWidget(row)
        column.addLayout(self._build_foot(foot))

    def _build_head(self, title: str, words: str, when: str) -> QWidget:
        head = QWidget()
        lines = vbox(parent=head, margins=(48, 15, 16, 15), spacing=2)
        first = hbox((Text(title, "title", 600, wrap=True), 1))
        first.addWidget(Text(when, "caption", tone="muted"), 0, Qt.AlignmentFlag.AlignTop)
        lines.addLayout(first)
        label = Phrase(words, "body", wrap=True)
        second = hbox((label, 7))
        second.addStretch(3)
        lines.addLayout(second)
        return head

    def _build_foot(self, foot: str) -> QHBoxLayout:
        line = hbox((Text(foot, "label", 400, "muted", elide=True), 1), margins=(16, 7, 12, 7))
        tools = [("Copy report", "copy", self.report_requested)]
        if self._log:
            tools.insert(0, ("Show log", "file-text", self.log_requested))
        if self._place:
            tools.insert(0, (f"Open {self._place}", "file-code", self.place_requested))
        for words, icon, signal in tools:
            button = Button(words, "quiet", icon=icon)
            button.clicked.connect(signal)
            line.addWidget(button)
        return line

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint.box(painter, self.rect(), "surface", "bad-line", 8)
            clip = QPainterPath()
            clip.addRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), 7, 7)
            painter.setClipPath(clip)
            painter.fillRect(self._head.geometry(), theme().color("bad-soft"))
            painter.setClipping(False)
            paint.icon(painter, QPointF(16, 18), "octagon-alert", "bad", 20)


class _RemedyRow(QWidget):
    """Row of 52 px: icon, title and cost, measured effect, button."""

    chosen = Signal(str)

    def __init__(self, remedy: Remedy, primary: bool) -> None:
        super().__init__()
        self._remedy, self._primary = remedy, primary
        self.setFixedHeight(52)
        words = vbox(
            Text(remedy.title, "body", 500, elide=True),
            Text(remedy.cost, "label", 400, "muted", elide=True),
            margins=(0, 8, 0, 8),
            spacing=0,
        )
        self._button = Button(remedy.button, "primary" if primary else "outlined")
        self._button.setFixedWidth(max(132, self._button.sizeHint().width()))
        self._button.clicked.connect(lambda: self.chosen.emit(remedy.key))
        line = hbox((words, 1), parent=self, margins=(52, 0, 16, 0))
        self._room = QWidget()
        add(line, self._room, self._button)

    def resizeEvent(self, event: QResizeEvent) -> None:
        wide = self.width() > _METER_FROM_PX and self._remedy.share is not None
        self._room.setFixedWidth(284 if wide else 0)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            painter.fillRect(0, 0, self.width(), 1, theme().color("border"))
            tone = "accent" if self._primary else "muted"
            paint.icon(painter, QPointF(16, 18), self._remedy.icon, tone, 16)
            painter.fillRect(0, self.height() - 1, self.width(), 1, theme().color("border"))
            if self._room.width() and self._remedy.share is not None:
                room = QRectF(self._room.geometry())
                bar = QRectF(room.left(), room.center().y() - 3, 172, 6)
                paint_meter(painter, bar, self._remedy.share, "plot-1")
                cost = room.adjusted(180, 0, -12, 0)
                paint.text(
                    painter, cost, self._remedy.figure, "muted", "mono-small", align=paint.RIGHT
                )
