"""Label chips of a trajectory: filled if applied, outlined if pending. The first chip shows its
text; the others shrink to icons if there is no room."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter

from studio.widgets.painting import paint

HEIGHT = 20.0
_ICON, _PADDING, _GAP = 12, 6.0, 4.0


@dataclass(frozen=True)
class LabelChip:
    """Chip of a label; `pending` until the label is committed with Enter."""

    words: str
    icon: str
    tone: str = "human"
    pending: bool = False

    def spoken_words(self) -> str:
        """Return the chip's text for screen readers, and whether it is not applied yet."""
        return f"{self.words}, not applied yet" if self.pending else self.words


def _wide(chip: LabelChip) -> float:
    return 2 * _PADDING + _ICON + 4 + paint.text_width(chip.words, "caption", 500)


_NARROW = 2 * _PADDING + _ICON - 2


def fitted(chips: Sequence[LabelChip], room: float) -> list[tuple[LabelChip, float, bool]]:
    """Return the chips that fit in `room` px, each with its width and whether its text is shown.
    The oldest are dropped first; pending ones take precedence."""
    order = sorted(range(len(chips)), key=lambda i: (not chips[i].pending, -i))
    shown: dict[int, tuple[LabelChip, float, bool]] = {}
    left = room
    for rank, place in enumerate(order):
        chip = chips[place]
        still = (len(order) - rank - 1) * (_NARROW + _GAP)
        for width, with_text in ((_wide(chip), True), (_NARROW, False)):
            if width + (still if with_text else 0) <= left or (width <= left and not with_text):
                shown[place] = (chip, width, with_text)
                left -= width + _GAP
                break
    return [shown[place] for place in sorted(shown)]


def paint_label_chips(painter: QPainter, rect: QRectF, chips: Sequence[LabelChip]) -> None:
    """Draw the chips right-aligned in a rectangle 20 px high."""
    placed = fitted(chips, rect.width())
    x = rect.right() - sum(width for _, width, _ in placed) - _GAP * max(0, len(placed) - 1)
    for chip, width, with_text in placed:
        box = QRectF(x, rect.top(), width, HEIGHT)
        edge = {"bad": "bad-line"}.get(chip.tone, "human-line")
        fill = None if chip.pending else f"{chip.tone}-soft"
        paint.box(painter, box, fill, edge if chip.pending else None, 4)
        at = QPointF(x + _PADDING - (0 if with_text else 1), rect.top() + (HEIGHT - _ICON) / 2)
        paint.icon(painter, at, chip.icon, chip.tone, _ICON)
        if with_text:
            words = QRectF(at.x() + _ICON + 4, rect.top(), width, HEIGHT)
            paint.text(painter, words, chip.words, chip.tone, "caption", 500, elide=False)
        x += width + _GAP
