"""Drawings of the preflight: memory bar, baseline range, distribution of scenarios."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from engine.protocol.records.forecast import Forecast
from engine.protocol.records.runs import Interval
from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.painting import paint

USEFUL = (0.3, 0.8)
BUCKETS = 5


@dataclass(frozen=True)
class Share:
    """Segment of the memory bar: label, bytes, colour token."""

    words: str
    bytes: int
    token: str


def shares_of(forecast: Forecast) -> list[Share]:
    """Return the segments of the memory bar."""
    return [
        Share("model", forecast.weights_bytes, "plot-3"),
        Share("sampler and cache", forecast.sampler_bytes, "plot-1"),
        Share("adapter and optimizer", forecast.adapter_bytes, "plot-4"),
        Share("activations", forecast.activations_bytes, "plot-2"),
    ]


class Drawn(QWidget):
    """Drawing with an accessible name that fills the available width."""

    high = 40

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setAccessibleName(name)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        return QSize(200, self.high)


class MemoryBar(Drawn):
    """Bar of the estimated memory of a run, relative to free memory."""

    high = 68

    def __init__(self) -> None:
        super().__init__("Memory")
        self._shares: list[Share] = []
        self._room = 1

    def set_forecast(self, forecast: Forecast) -> None:
        self._shares, self._room = shares_of(forecast), max(1, forecast.available_bytes)
        self.setAccessibleDescription(
            ", ".join(f"{share.words} {formatting.size(share.bytes)}" for share in self._shares)
        )
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        total = sum(share.bytes for share in self._shares)
        whole = max(self._room, total)
        with paint.painting(self) as painter:
            frame = QRectF(0.5, 0.5, self.width() - 1, 17)
            paint.box(painter, frame, "background", "border-strong", 3)
            x = 1.0
            for share in self._shares:
                width = share.bytes / whole * (self.width() - 2)
                cell = QRectF(x, 1, max(2.0, width - 1), 16)
                painter.fillRect(cell, theme().color(share.token))
                x += max(2.0, width)
            self._legend(painter)

    def _legend(self, painter: QPainter) -> None:
        x, y = 0.0, 26.0
        for share in self._shares:
            words, figure = share.words, formatting.size(share.bytes)
            width = (
                14 + paint.text_width(words, "caption") + 6 + paint.text_width(figure, "caption")
            )
            if x and x + width > self.width():
                x, y = 0.0, y + 20
            square = QRectF(x, y + 4, 8, 8)
            paint.box(painter, square, share.token, None, 2)
            after = paint.text(painter, QRectF(x + 14, y, width, 16), words, "muted", "caption")
            at = QRectF(x + 14 + after + 6, y, width, 16)
            paint.text(painter, at, figure, "faint", "caption")
            x += width + 14


class BaselineBand(Drawn):
    """Baseline success rate on the range that is useful for training."""

    high = 54

    def __init__(self) -> None:
        super().__init__("Solved before training")
        self._rate: Interval | None = None

    def set_rate(self, rate: Interval | None) -> None:
        """Set the baseline success rate (0 to 1); None: not measured."""
        self._rate = rate
        self.setAccessibleDescription(formatting.percent(rate.mean) if rate else "not measured")
        self.update()

    def _x(self, share: float) -> float:
        return min(1.0, max(0.0, share)) * self.width()

    def paintEvent(self, event: QPaintEvent) -> None:
        low, high = USEFUL
        with paint.painting(self) as painter:
            bar = QRectF(0, 18, self.width(), 14)
            paint.box(painter, bar, "border", None, 3)
            useful = QRectF(self._x(low), 18, self._x(high) - self._x(low), 14)
            paint.box(painter, useful, "good-soft", "good", 2)
            for words, left, right, tone in (
                ("too hard", 0.0, low, "faint"),
                ("useful", low, high, "good"),
                ("too easy", high, 1.0, "faint"),
            ):
                label = QRectF(self._x(left), 0, self._x(right) - self._x(left), 16)
                paint.text(painter, label, words, tone, "caption", align=paint.CENTER)
            for words, share in (("0", 0.0), ("30", low), ("80", high), ("100 %", 1.0)):
                at = QRectF(self._x(share) - 20, 36, 40, 16)
                at.moveLeft(min(max(0.0, at.left()), self.width() - 40))
                align = {0.0: paint.LEFT, 1.0: paint.RIGHT}.get(share, paint.CENTER)
                paint.text(painter, at, words, "faint", "caption", align=align)
            if self._rate is not None:
                self._mark(painter, self._rate)

    def _mark(self, painter: QPainter, rate: Interval) -> None:
        painter.setPen(QPen(theme().color("text"), 2))
        painter.drawLine(QPointF(self._x(rate.low), 25), QPointF(self._x(rate.high), 25))
        x = self._x(rate.mean)
        corners = [QPointF(x, 19), QPointF(x + 6, 25), QPointF(x, 31), QPointF(x - 6, 25)]
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme().color("text"))
        painter.drawPolygon(QPolygonF(corners))


def spread_of(rates: Sequence[float]) -> list[float]:
    """Return the share of scenarios in each fifth of the reward range 0 to 1."""
    counts = [0] * BUCKETS
    for rate in rates:
        counts[min(BUCKETS - 1, max(0, int(rate * BUCKETS)))] += 1
    return [count / len(rates) for count in counts] if rates else []


class SpreadBars(Drawn):
    """Histogram of scenarios by success rate."""

    high = 92

    def __init__(self) -> None:
        super().__init__("Distribution of scenarios")
        self._shares: list[float] = []

    def set_rates(self, rates: Sequence[float]) -> None:
        """Set the mean rewards, one per scenario; without any, the widget is hidden."""
        self._shares = spread_of(rates)
        self.setVisible(bool(self._shares))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self._shares:
            return
        slot = (self.width() + 6) / BUCKETS
        highest = max(self._shares)
        with paint.painting(self) as painter:
            for i, share in enumerate(self._shares):
                tall = 48 * share / highest
                bar = QRectF(i * slot, 66 - tall, slot - 6, tall)
                ends = i in (0, BUCKETS - 1)
                paint.box(painter, bar, "ghost" if ends else "plot-1", None, 2)
                words = QRectF(i * slot, 48 - tall, slot - 6, 16)
                tone = "faint" if ends else "text"
                percent = formatting.percent(share)
                paint.text(painter, words, percent, tone, "caption", align=paint.CENTER)
                foot = QRectF(i * slot, 70, slot - 6, 16)
                label = f"{i * 20}–{i * 20 + 20}"
                paint.text(painter, foot, label, "faint", "caption", align=paint.CENTER)
