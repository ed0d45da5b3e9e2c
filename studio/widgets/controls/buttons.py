"""Buttons: primary (one in view), outlined, quiet, and icon buttons. Labels begin with a verb."""

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QEnterEvent, QKeyEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from studio.theme.plain_tooltips import set_tip
from studio.theme.theme import theme
from studio.widgets.painting import paint
from studio.widgets.painting.focus import KeyboardFocus
from studio.widgets.painting.motion import Glide

KINDS = ("primary", "outlined", "quiet", "danger")
PRESSES = (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space)
"""Keys that press a button; a busy one ignores them."""
_PADDING = {24: 8, 28: 11, 32: 14}
_ICON = 14
_GAP = 7


class Button(KeyboardFocus, QAbstractButton):
    """Button: `Button("Re-judge 24 groups", "primary", icon="scale", price="48 calls · ≈ $0.31")`.
    The signal is `clicked` of QAbstractButton. `set_busy` shows a text and a thin progress bar and
    ignores clicks."""

    def __init__(
        self,
        words: str,
        kind: str = "outlined",
        *,
        icon: str = "",
        price: str = "",
        key: str = "",
        height: int = 28,
        menu_arrow: bool = False,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        if kind not in KINDS:
            raise ValueError(f"button kind is {kind!r}, expected one of {', '.join(KINDS)}")
        if height not in _PADDING:
            raise ValueError(f"button height is {height}, expected one of {list(_PADDING)}")
        self._kind = kind
        self._icon = icon
        self._price = price
        self._key = key
        self._height = height
        self._menu_arrow = menu_arrow
        self._busy_words: str | None = None
        self._meter: float | None = None
        self._text_style: tuple[str, int] | None = None
        self._icon_only, self._least_px = False, 0
        self._hover = Glide(self)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Minimum, QSizePolicy.Policy.Fixed)
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self.set_words(words)

    def set_words(self, words: str, price: str | None = None) -> None:
        """Change the label, and the price shown after it (None: keep the price)."""
        self.setText(words.replace("&", "&&"))
        if price is not None:
            self._price = price
        self._name()

    def words(self) -> str:
        """Label without the price."""
        return self.text().replace("&&", "&")

    def set_kind(self, kind: str) -> None:
        """Set the button's look: primary, outlined, quiet or danger."""
        self._kind = kind
        self.update()

    def set_icon(self, name: str) -> None:
        """Change the icon; an empty name removes it."""
        self._icon = name
        self.updateGeometry()
        self.update()

    def set_icon_only(self, icon_only: bool) -> None:
        """Show only the icon, in a narrow window; the label becomes the tooltip."""
        self._icon_only = icon_only and bool(self._icon)
        set_tip(self, self.words() if self._icon_only else "")
        self.updateGeometry()
        self.update()

    def set_shrinks(self, least_px: int) -> None:
        """Let a layout shrink the button down to a width; its label is then elided."""
        self._least_px = least_px
        self.updateGeometry()

    def set_text_style(self, style: str, weight: int) -> None:
        """Set type style and weight (400 to 600) of the label, for a button that shows a name."""
        self._text_style = (style, weight)
        self.updateGeometry()

    def set_busy(self, words: str | None, share: float | None = None) -> None:
        """Show a busy text and progress (0 to 1, None: unknown); `words` None ends it."""
        self._busy_words, self._meter = words, share
        self._name()

    def is_busy(self) -> bool:
        """Whether a busy text is shown."""
        return self._busy_words is not None

    def _name(self) -> None:
        parts = [self._busy_words or self.words(), "" if self._busy_words else self._price]
        self.setAccessibleName(", ".join(part for part in parts if part))
        self.updateGeometry()
        self.update()

    def _shown(self) -> tuple[str, str]:
        if self._icon_only:
            return "", ""
        if self._busy_words is not None:
            return self._busy_words, ""
        return self.words(), f"\u00b7 {self._price}" if self._price else ""

    def _style(self) -> tuple[str, int]:
        if self._text_style is not None:
            return self._text_style
        if self._kind == "primary":
            return ("body" if self._height >= 32 else "label"), 600
        return ("body" if self._height >= 32 else "label"), 500

    def _content_width(self) -> float:
        style, weight = self._style()
        words, price = self._shown()
        width = paint.text_width(words, style, weight) if words else 0.0
        if price:
            width += 6 + paint.text_width(price, style, 400 if self._kind != "primary" else 500)
        if self._icon:
            width += _ICON + (_GAP if words else 0)
        if self._key and not self._icon_only:
            width += 8 + paint.text_width(self._key, "mono-small") + 10
        if self._menu_arrow:
            width += _ICON + 4
        return width

    def _tones(self) -> tuple[str, QColor | None, str | None]:
        """Tokens of text, fill and edge."""
        color = theme().color
        if not self.isEnabled():
            edge = None if self._kind == "quiet" else "border"
            return "faint", (color("chip") if self._kind == "primary" else None), edge
        share = 1.0 if self.isDown() else self._hover.value
        if self._kind == "primary":
            fill = paint.mix(color("accent"), color("accent-hover"), share)
            if self.isDown():
                fill = paint.mix(fill, color("accent-line"), 0.25)
            return "on-accent", fill, None
        rest = QColor(color("raised")) if self._kind != "quiet" else QColor(color("hover"))
        if self._kind == "quiet":
            rest.setAlpha(0)
        fill = paint.mix(rest, color("chip" if self.isDown() else "hover"), share)
        if self._kind == "danger":
            return "bad", fill, "bad-line"
        tone = "muted" if self._kind == "quiet" and share < 0.5 else "text"
        return tone, fill, None if self._kind == "quiet" else "border-strong"

    def _paint_frame(self, painter: QPainter, fill: QColor | None, edge: str | None) -> None:
        inset = 0.5 if edge else 0.0
        frame = QRectF(self.rect()).adjusted(inset, inset, -inset, -inset)
        painter.setPen(QPen(theme().color(edge), 1) if edge else Qt.PenStyle.NoPen)
        painter.setBrush(fill if fill is not None else Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(frame, 6, 6)
        if self.is_busy():
            self._paint_meter(painter)

    def _paint_meter(self, painter: QPainter) -> None:
        share = 0.35 if self._meter is None else min(1.0, max(0.0, self._meter))
        room = QRectF(10, self.height() - 5, self.width() - 20, 2)
        primary = self._kind == "primary"
        paint.box(painter, room, "accent-line" if primary else "border", None, 1)
        room.setWidth(room.width() * share)
        paint.box(painter, room, "on-accent" if primary else "accent", None, 1)

    def sizeHint(self) -> QSize:
        if self._icon_only:
            return QSize(self._height + 4, self._height)
        return QSize(round(self._content_width()) + 2 * _PADDING[self._height] + 1, self._height)

    def minimumSizeHint(self) -> QSize:
        hint = self.sizeHint()
        return QSize(min(hint.width(), self._least_px or hint.width()), hint.height())

    def paintEvent(self, event: QPaintEvent) -> None:
        tone, fill, edge = self._tones()
        style, weight = self._style()
        words, price = self._shown()
        with paint.painting(self) as painter:
            self._paint_frame(painter, fill, edge)
            middle = self.height() / 2
            room = self.width() - 2 * _PADDING[self._height]
            x = _PADDING[self._height] + max(0.0, (room - self._content_width()) / 2)
            if self._icon_only:
                x = (self.width() - _ICON) / 2
            if self._icon:
                paint.icon(painter, QPointF(round(x), middle - _ICON / 2), self._icon, tone, _ICON)
                x += _ICON + _GAP
            line = QRectF(x, 0, self.width(), self.height() - (3 if self.is_busy() else 0))
            if words:
                x += paint.text(painter, line, words, tone, style, weight, elide=False)
            if price:
                line.setLeft(x + 6)
                primary = self._kind == "primary"
                quieter = tone if primary or not self.isEnabled() else "muted"
                x = line.left() + paint.text(
                    painter, line, price, quieter, style, 500 if primary else 400, elide=False
                )
            if self._key and not self._icon_only:
                self._paint_key(painter, x + 8, tone)
            if self._menu_arrow:
                at = QPointF(self.width() - _PADDING[self._height] - _ICON + 2, middle - 7)
                paint.icon(painter, at, "chevron-down", tone, _ICON)

    def _paint_key(self, painter: QPainter, x: float, tone: str) -> None:
        width = paint.text_width(self._key, "mono-small") + 10
        cap = QRectF(x, self.height() / 2 - 9, width, 18)
        edge = "on-accent" if self._kind == "primary" and self.isEnabled() else "border-strong"
        paint.box(painter, cap, None, edge, 4)
        paint.text(painter, cap, self._key, tone, "mono-small", align=paint.CENTER, elide=False)

    def enterEvent(self, event: QEnterEvent) -> None:
        self._hover.to(1.0)
        super().enterEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        self._hover.to(0.0)
        super().leaveEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if self.is_busy() and event.key() in PRESSES:
            event.accept()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.click()
        else:
            super().keyPressEvent(event)

    def nextCheckState(self) -> None:
        if not self.is_busy():
            super().nextCheckState()

    def hitButton(self, pos: object) -> bool:
        return not self.is_busy() and super().hitButton(pos)  # type: ignore[arg-type]


class IconButton(Button):
    """Icon button, 24 or 28 px square; its text is tooltip and accessible name."""

    def __init__(
        self,
        icon: str,
        words: str,
        *,
        size: int = 24,
        kind: str = "quiet",
        key: str = "",
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(
            words, kind, icon=icon, height=size if size in _PADDING else 28, parent=parent
        )
        self._square = size
        self.set_icon_only(True)
        set_tip(self, f"{words}  {key}".strip())
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        return QSize(self._square, self._square)
