"""Meters: a bar with a label before it and a figure after it, and the bar alone."""

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.painting import paint

FIGURE_GAP_PX = 12
"""Least gap between a bar and the figure after it."""


def paint_meter(
    painter: QPainter, rect: QRectF, share: float, token: str, ground: str = "border"
) -> None:
    """Draw a bar filled to a share (0 to 1) in the colour `token`, over the colour `ground`."""
    clip = QPainterPath()
    clip.addRoundedRect(rect, 2, 2)
    painter.save()
    painter.setClipPath(clip)
    painter.fillRect(rect, theme().color(ground))
    filled = rect.width() * min(1.0, max(0.0, share))
    painter.fillRect(QRectF(rect.left(), rect.top(), filled, rect.height()), theme().color(token))
    painter.restore()


class Meter(QWidget):
    """Bar: `set_share(0.7)`."""

    def __init__(
        self, name: str, token: str = "plot-1", height: int = 6, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._name, self._token, self._share = name, token, 0.0
        self.setFixedHeight(height)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.set_share(0.0)

    def set_share(self, share: float, token: str | None = None) -> None:
        """Set the filled share, 0 to 1, and the fill colour (None: unchanged)."""
        self._share, self._token = share, token or self._token
        self.setAccessibleName(f"{self._name} {formatting.percent(share)}")
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(120, self.height())

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint_meter(painter, QRectF(self.rect()), self._share, self._token)


def bar_between(row: QWidget, words_px: int, figure: str, figure_px: int, bar_px: int) -> QRectF:
    """Return the rectangle of a bar, `bar_px` high, between a label and a figure: `figure_px` are
    kept for it, and more where its text is longer."""
    figure_width = max(figure_px, paint.text_width(figure, "mono-small") + FIGURE_GAP_PX)
    width = max(0.0, row.width() - words_px - figure_width)
    return QRectF(words_px, row.height() / 2 - bar_px / 2, width, bar_px)


class MeterRow(QWidget):
    """Labelled bar: `MeterRow("Memory", "plot-1")`, then `set_value(98 / 141, "98 / 141 GB")`. 28
    px high."""

    def __init__(
        self,
        words: str,
        token: str = "plot-1",
        *,
        words_px: int = 68,
        figure_px: int = 92,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._words, self._token = words, token
        self._words_px, self._figure_px = words_px, figure_px
        self._share: float | None = None
        self._figure = formatting.ABSENT
        self.setFixedHeight(28)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.set_value(None, formatting.ABSENT)

    def set_value(self, share: float | None, figure: str, token: str | None = None) -> None:
        """Set the filled share (None: empty), the text after it, and the colour (None: kept)."""
        self._share, self._figure, self._token = share, figure, token or self._token
        self.setAccessibleName(f"{self._words} {figure}")
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(240, 28)

    def bar(self) -> QRectF:
        """Return the rectangle of the bar, which ends before the figure."""
        return bar_between(self, self._words_px, self._figure, self._figure_px, 6)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            row = QRectF(self.rect())
            words = row.adjusted(0, 0, self._words_px - row.width(), 0)
            paint.text(painter, words, self._words, "muted", "label", 400)
            paint_meter(painter, self.bar(), self._share or 0.0, self._token)
            paint.text(
                painter, row, self._figure, "text", "mono-small", align=paint.RIGHT, elide=False
            )
