"""Column header of a trajectory: number, reward, advantage, labels, parts, rank, judge reason,
divergence."""

from dataclasses import dataclass, field, replace

from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QApplication, QWidget

from engine.protocol.records.judging import PART as RULER
from engine.protocol.records.judging import Verdict
from engine.protocol.records.labels import PART as LABEL
from engine.protocol.records.runs import Trajectory
from studio.pages.trajectories.groups.folding import Fold
from studio.pages.trajectories.reader.transcript_rows import Weights, parts_of
from studio.text import formatting
from studio.theme.plain_tooltips import set_tip
from studio.theme.theme import theme
from studio.widgets.painting import paint
from studio.widgets.painting.advantage_mark import paint_advantage
from studio.widgets.tables.label_chips import LabelChip, paint_label_chips
from studio.widgets.tables.reward_bar import paint_parts
from studio.widgets.transcript.items import plain
from studio.widgets.transcript.view import FAINT

REASON_LINES, REASON_MOST = 3, 600
_TOP, _REASON_PX, _WORD_PX, _BAND_PX = 76, 56, 20, 26


@dataclass(frozen=True)
class HeadFacts:
    """Content of a column header. `divergence` is the text on where the trajectory diverges, empty
    for the only one of a group."""

    record: Trajectory
    fold: Fold | None = None
    """Identical trajectories, of which `record` is the first."""
    full_reward: float = 1.0
    """Reward of a full bar of reward parts, the same for all columns of a group."""
    rank: int = 0
    of: int = 0
    divergence: str = ""
    verdict: Verdict | None = None
    chips: tuple[LabelChip, ...] = ()
    excluded: bool = False
    weights: Weights = field(default_factory=dict)
    judged: bool = False
    spoken: bool = False
    blind: bool = False

    def copies(self) -> int:
        """Return the number of identical trajectories, itself included."""
        return len(self.fold.records) if self.fold else 1

    def titled(self, divergence: str) -> "HeadFacts":
        """Return a copy whose text about the first divergence is `divergence`."""
        return replace(self, divergence=divergence)


class ColumnHead(QWidget):
    """Header of a trajectory column. Emits `pressed` on a click, and `dragged(x)` and `dropped(x)`
    with a screen position in pixels while the user drags it to another rank."""

    pressed = Signal()
    dragged = Signal(int)
    dropped = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._facts: HeadFacts | None = None
        self._focused = False
        self._grip: float | None = None
        self._dragging = False
        self._figures_end = 0.0
        self.setFixedHeight(_TOP + _BAND_PX)

    def show_facts(self, facts: HeadFacts) -> None:
        self._facts = facts
        height = _TOP + _REASON_PX * facts.judged + _WORD_PX * facts.spoken
        height += _BAND_PX * bool(facts.divergence)
        self.setFixedHeight(height)
        self.setAccessibleName(spoken_words(facts))
        set_tip(self, facts.fold.words() if facts.fold and facts.copies() > 1 else "")
        self.update()

    def set_focused(self, focused: bool) -> None:
        self._focused = focused
        self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._grip = event.globalPosition().x()
        self.pressed.emit()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._grip is None:
            return
        x = event.globalPosition().x()
        if self._dragging or abs(x - self._grip) > QApplication.startDragDistance():
            self._dragging = True
            self.setCursor(Qt.CursorShape.ClosedHandCursor)
            self.dragged.emit(round(x))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if self._dragging:
            self.dropped.emit(round(event.globalPosition().x()))
        self._let_go()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        self._let_go()
        super().keyPressEvent(event)

    def _let_go(self) -> None:
        self._grip, self._dragging = None, False
        self.unsetCursor()

    def paintEvent(self, event: QPaintEvent) -> None:
        facts = self._facts
        if facts is None:
            return
        with paint.painting(self) as painter:
            painter.setOpacity(FAINT if facts.excluded else 1.0)
            self._paint_figures(painter, facts)
            y = float(_TOP)
            if facts.spoken:
                self._paint_word(painter, facts, y)
                y += _WORD_PX
            if facts.judged:
                self._paint_reason(painter, facts, y)
            self._paint_band(painter, facts)
            painter.setOpacity(1.0)
            chips = QRectF(self.width() / 2, 12, self.width() / 2 - 12, 20)
            chips.setLeft(self._figures_end + 8)
            paint_label_chips(painter, chips, facts.chips)

    def _paint_figures(self, painter: QPainter, facts: HeadFacts) -> None:
        record = facts.record
        badge = QRectF(12, 12, 20, 20)
        paint.box(painter, badge, "accent" if self._focused else "chip", None, 4)
        tone = "on-accent" if self._focused else "muted"
        number = str(record.index + 1)
        paint.text(painter, badge, number, tone, "caption", 600, paint.CENTER)
        left = 42.0
        if facts.copies() > 1:
            room = QRectF(left - 4, 12, 40, 20)
            left += paint.text(painter, room, f"× {facts.copies()}", "muted", "label", 600) + 6
        if facts.blind:
            self._paint_hidden(painter, left)
            return
        reward = QRectF(left, 8, 70, 28)
        x = left + paint.text(painter, reward, formatting.number(record.reward), "text", "title")
        x += 10
        if record.advantage is not None:
            x += paint_advantage(painter, QRectF(x, 12, 90, 20), record.advantage)
        self._figures_end = x
        bar = QRectF(12, 42, self.width() - 24, 6)
        paint_parts(painter, bar, parts_of(record, facts.weights), facts.full_reward)
        words = QRectF(12, 54, self.width() - 24, 18)
        tone = "warn" if record.reward is None else "muted"
        paint.text(painter, words, rank_words(facts), tone, "caption")

    def _paint_hidden(self, painter: QPainter, left: float) -> None:
        """Paint hatches in place of the figures hidden by blind grading, from `left` in pixels."""
        self._figures_end = left + 108
        for box in (QRectF(left, 13, 96, 18), QRectF(12, 42, self.width() - 24, 6)):
            paint.hatch(painter, box, "border-strong")
        words = QRectF(12, 54, self.width() - 24, 18)
        paint.text(painter, words, "hidden until you label", "faint", "caption")

    def _paint_word(self, painter: QPainter, facts: HeadFacts, y: float) -> None:
        if words := change_words(facts.record):
            paint.icon(painter, QPointF(12, y + 2), "user-round-check", "human", 14)
            room = QRectF(32, y, self.width() - 44, 18)
            paint.text(painter, room, words, "human", "caption", 500)

    def _paint_reason(self, painter: QPainter, facts: HeadFacts, y: float) -> None:
        verdict = facts.verdict
        if verdict is None:
            return
        problem = verdict.problem.message if verdict.problem else "The judge gave no reason."
        reason = plain(verdict.reason[:REASON_MOST]).replace("\n", " ") or problem
        paint.icon(painter, QPointF(12, y + 1), "scale", "judge", 14)
        room = QRectF(32, y, self.width() - 44, 16 * REASON_LINES)
        tone = "muted" if verdict.reason else "warn"
        paint.paragraph(painter, room, reason, tone, "caption", REASON_LINES)

    def _paint_band(self, painter: QPainter, facts: HeadFacts) -> None:
        if not facts.divergence:
            return
        band = QRectF(1, self.height() - 22, self.width() - 2, 22)
        painter.fillRect(band, theme().color("chip"))
        paint.icon(painter, band.topLeft() + QPointF(10, 4), "split", "muted", 14)
        paint.text(painter, band.adjusted(30, 0, -8, 0), facts.divergence, "muted", "caption")


def rank_words(facts: HeadFacts) -> str:
    """Describe rank, number of turns and tokens, or why the trajectory has no reward."""
    record = facts.record
    if record.reward is None:
        why = record.problem.message if record.problem else "no reward"
        return f"unscored · {why}"
    place = f"{formatting.ordinal(facts.rank)} of {facts.of}"
    if facts.fold and (varies := facts.fold.reward_words()):
        place = varies.removeprefix(", ")
    words = [place, formatting.plural(record.turns, "turn")]
    if record.sampled_tokens:  # imported trajectories have no token counts
        words.append(f"{formatting.count(record.sampled_tokens)} tokens")
    return " · ".join(words)


def change_words(record: Trajectory) -> str:
    """Describe scores before and after labels: "judge 0.80, you 0.88"; empty without labels."""
    before = record.unlabelled
    if before is None or record.reward is None:
        return ""  # excluded trajectories have no score; the chip shows this
    now = record.parts.get(LABEL, record.parts.get(RULER))
    kept = LABEL not in record.parts and now == before.parts.get(RULER)
    if RULER in before.parts and now is not None and not kept:
        who = "you" if LABEL in record.parts else "rescaled to match your scores:"
        return f"judge {formatting.number(before.parts[RULER])}, {who} {formatting.number(now)}"
    return f"reward before the label {formatting.number(before.reward)}"


def spoken_words(facts: HeadFacts) -> str:
    """Return the header content as text for screen readers."""
    record = facts.record
    named = [f"Trajectory {record.index + 1}"]
    if facts.fold and facts.copies() > 1:
        named.append(facts.fold.words())
    if facts.blind:
        chips = [chip.spoken_words() for chip in facts.chips]
        return ", ".join([*named, "hidden until you label", *chips])
    words = [
        *named,
        f"reward {formatting.number(record.reward)}",
        f"advantage {formatting.signed(record.advantage)}",
        rank_words(facts),
        change_words(record),
        *(chip.spoken_words() for chip in facts.chips),
    ]
    if facts.verdict and facts.verdict.reason:
        words.append(f"judge: {facts.verdict.reason[:REASON_MOST]}")
    return ", ".join(word for word in words if word)
