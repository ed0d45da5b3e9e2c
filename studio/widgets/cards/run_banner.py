"""Banner of an active run on the Home page: progress, reward and a button that opens the run."""

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, Signal
from PySide6.QtGui import QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from studio.theme.tokens import reward_token
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import STRETCH, hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.steps.strip_layout import StepCell, lay_out, merged_cell
from studio.widgets.text.phrase import Phrase, Span
from studio.widgets.text.text import Text

MOST_FACTS_PX = 320


class RunBanner(QWidget):
    """Banner: `set_run("inbox-scout is training", "step 46 of 120 · 2 h 40 min left", cells,
    spans)`."""

    run_opened = Signal()
    notice_activated = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedHeight(64)
        self._title = Text("", "body", 600)
        self._words = Text("", "label", 400, "muted")
        self._strip = MiniStrip()
        self._facts = Phrase((), "label")
        self._open = Button("Open run", "outlined")
        words = vbox(STRETCH, self._title, self._words, STRETCH, spacing=1)
        hbox(
            words,
            20,
            (self._strip, 3),
            (self._facts, 2),
            self._open,
            parent=self,
            margins=(56, 0, 16, 0),
            spacing=24,
        )
        self._open.clicked.connect(self.run_opened)
        self._facts.link_activated.connect(self.notice_activated)

    def set_run(
        self,
        title: str,
        words: str,
        cells: Sequence[StepCell],
        facts: Sequence[Span],
        low: float = 0.0,
        high: float = 1.0,
    ) -> None:
        """Set title, subtitle, step cells and text of the banner; `low` and `high` are the rewards
        at the ends of the colour ramp."""
        self._title.set_words(title)
        self._words.set_words(words)
        self._strip.set_steps(cells, low, high)
        width = min(MOST_FACTS_PX, sum(paint.text_width(s.words, "label", s.weight) for s in facts))
        self._facts.setMinimumWidth(round(width) + 4)
        self._facts.set_spans(facts)
        self.setAccessibleName(f"{title}, {words}")

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._strip.setVisible(self.width() > 760)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint.box(painter, self.rect(), "accent-soft", "accent-line", 8)
            paint.icon(painter, QPointF(17, 22), "activity", "accent", 20)


class MiniStrip(QWidget):
    """Step strip without marks, keyboard and tooltip, 14 px high."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._cells: tuple[StepCell, ...] = ()
        self._range = (0.0, 1.0)
        self.setFixedHeight(14)
        self.setAccessibleName("Steps")

    def set_steps(self, cells: Sequence[StepCell], low: float = 0.0, high: float = 1.0) -> None:
        """Set the cells of all steps, planned ones too, and the rewards at the ramp's ends."""
        self._cells, self._range = tuple(cells), (low, high)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            for slot in lay_out(len(self._cells), self.width()):
                cell = merged_cell(self._cells[slot.first : slot.last + 1])
                rect = QRectF(slot.x, 0, slot.width, 14)
                if cell.state == "done" and cell.reward is not None:
                    paint.box(painter, rect, reward_token(cell.reward, *self._range), None, 1)
                elif cell.state == "running":
                    paint.box(painter, rect, None, "accent", 1)
                elif cell.state == "stopped":
                    paint.box(painter, rect, "bad-soft", "bad", 1)
                elif cell.state == "skipped":
                    paint.hatch(painter, rect, "ghost", 1)
                else:
                    paint.box(painter, rect, None, "border-strong", 1)
