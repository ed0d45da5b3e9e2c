"""Choice of the token colours, and their legend: swatches from the lowest to the highest value."""

from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize, Signal
from PySide6.QtGui import QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.text import formatting
from studio.widgets.controls.segmented import Segmented
from studio.widgets.layouts import STRETCH, hbox
from studio.widgets.painting import paint
from studio.widgets.text.text import Text

TINTS = (("Advantage", "advantage"), ("Log-prob", "logprob"), ("Mask", "mask"), ("None", "none"))
SWATCH_PX, HEIGHT_PX, GAP_PX = 14, 10, 6
_NEGATIVE = ("advantage-neg-3", "advantage-neg-2", "advantage-neg-1")
_POSITIVE = ("advantage-pos-1", "advantage-pos-2", "advantage-pos-3")
_UNLIKELY = ("unlikely-1", "unlikely-2", "unlikely-3")


@dataclass(frozen=True)
class Scale:
    """Swatches (colour tokens) with the words before and after them."""

    before: str
    swatches: tuple[str, ...]
    after: str

    def words(self) -> str:
        """Return the legend as text for screen readers."""
        return f"{self.before} to {self.after}" if self.before else self.after


def scale_of(tint: str, largest: float) -> Scale | None:
    """Return the legend of a tint (advantage, logprob, entropy or mask); None if nothing is
    coloured. `largest` is the absolute value at full colour."""
    if tint == "mask":
        return Scale("", _POSITIVE[1:2], "trained")
    if largest <= 0:
        return None
    if tint == "advantage":
        ends = formatting.signed(-largest), formatting.signed(largest)
        return Scale(ends[0], _NEGATIVE + _POSITIVE, ends[1])
    if tint == "logprob":
        return Scale("0", _UNLIKELY, f"{formatting.signed(-largest)}, least likely")
    if tint == "entropy":
        return Scale("0", _UNLIKELY, f"{formatting.number(largest)}, least certain")
    return None


class TintLegend(QWidget):
    """Legend of the token colours: `show_tint("advantage", 1.4)`."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._scale: Scale | None = None
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)

    def show_tint(self, tint: str, largest: float) -> None:
        """Show the scale of a tint (advantage, logprob, entropy, mask or none); `largest` is the
        absolute value at full colour."""
        self._scale = scale_of(tint, largest)
        self.setAccessibleName(self._scale.words() if self._scale else "")
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        if self._scale is None:
            return QSize(0, 20)
        words = [text for text in (self._scale.before, self._scale.after) if text]
        width = sum(paint.text_width(text, "caption") + GAP_PX for text in words)
        return QSize(round(width) + SWATCH_PX * len(self._scale.swatches) + 2, 20)

    def paintEvent(self, event: QPaintEvent) -> None:
        scale = self._scale
        if scale is None:
            return
        with paint.painting(self) as painter:
            x = 0.0
            room = QRectF(self.rect())
            if scale.before:
                x += paint.text(painter, room, scale.before, "muted", "caption") + GAP_PX
            for token in scale.swatches:
                box = QRectF(x, (self.height() - HEIGHT_PX) / 2, SWATCH_PX - 1, HEIGHT_PX)
                paint.box(painter, box, token, None, 2)
                x += SWATCH_PX
            paint.text(painter, room.adjusted(x + GAP_PX, 0, 0, 0), scale.after, "muted", "caption")


class TintBar(QWidget):
    """Choice of what the token colours show, with the legend where it fits. Emits
    `tint_chosen(name)`."""

    tint_chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._choice = Segmented([words for words, _ in TINTS], "Colour tokens by")
        self._words = Text("Colour tokens by", "label", 400, "muted")
        self._legend = TintLegend()
        self._parts = (self._words, self._choice, self._legend)
        hbox(*self._parts, STRETCH, parent=self, margins=(16, 8, 16, 8), spacing=10)
        self._choice.chosen.connect(lambda place: self.tint_chosen.emit(TINTS[place][1]))

    def show_tint(self, name: str, largest: float) -> None:
        """Show the tint `name` (advantage, logprob, mask or none) as selected, with its scale;
        `largest` is the absolute value at full colour."""
        names = [key for _, key in TINTS]
        if name in names:
            self._choice.set_index(names.index(name))
        self._legend.show_tint(name, largest)
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def minimumSizeHint(self) -> QSize:
        return QSize(self._choice.sizeHint().width() + 32, super().minimumSizeHint().height())

    def _fit(self) -> None:
        """Leave out the words, then the legend, if the bar is too narrow for them."""
        words, choice, legend = (part.sizeHint().width() + 10 for part in self._parts)
        room = self.width() - 32
        self._words.setVisible(words + choice + legend <= room)
        self._legend.setVisible(choice + legend <= room)
