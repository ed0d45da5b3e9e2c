"""Focus ring: 2 px wide, 2 px outside the control, shown only for keyboard focus.

A widget cannot paint outside itself, so one transparent overlay per window is moved to the focused
widget. `KeyboardFocus` is mixed into every interactive widget; rows and cells set `ring_inside =
True` and draw their own with `paint.focus_ring`."""

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, Qt
from PySide6.QtGui import QFocusEvent, QKeyEvent, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QAbstractScrollArea, QWidget
from shiboken6 import isValid

from studio.theme.theme import theme
from studio.widgets.painting.paint import painting

if TYPE_CHECKING:
    _Mixin = QWidget
else:
    _Mixin = object

BY_KEYBOARD = (
    Qt.FocusReason.TabFocusReason,
    Qt.FocusReason.BacktabFocusReason,
    Qt.FocusReason.ShortcutFocusReason,
)
_GAP = 4  # 2 px gap, 2 px ring


class FocusRing(QWidget):
    """Overlay of the ring. Transparent to mouse and focus, and outside of all layouts."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._target: QWidget | None = None
        self._radius = 6.0
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.hide()

    def surround(self, target: QWidget, radius: float) -> None:
        """Show the focus ring around a widget and follow it; `radius` is that of its corners."""
        self.release()
        self._target, self._radius = target, radius
        target.installEventFilter(self)
        self._follow()
        self.show()
        self.raise_()

    def release(self) -> None:
        """Hide the ring."""
        if self._target is not None and isValid(self._target):
            self._target.removeEventFilter(self)
        self._target = None
        self.hide()

    def _follow(self) -> None:
        if self._target is None or not isValid(self._target):
            return
        host = _host_of(self._target)
        if self.parentWidget() is not host:
            self.setParent(host)
            self.show()
        corner = self._target.mapTo(host, QPoint(0, 0))
        self.setGeometry(QRect(corner, self._target.size()).adjusted(-_GAP, -_GAP, _GAP, _GAP))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.Move, QEvent.Type.Resize):
            self._follow()
        elif event.type() in (QEvent.Type.Hide, QEvent.Type.FocusOut):
            self.release()
        return False

    def paintEvent(self, event: QPaintEvent) -> None:
        with painting(self) as painter:
            painter.setPen(QPen(theme().color("focus"), 2))
            painter.drawRoundedRect(
                self.rect().adjusted(1, 1, -1, -1), self._radius + 3, self._radius + 3
            )


class KeyboardFocus(_Mixin):
    """Mixin that shows the ring if the focus came by keyboard."""

    ring_inside = False
    ring_radius = 6.0
    _keyboard_focus = False

    @property
    def keyboard_focus(self) -> bool:
        """Whether this widget has the focus by keyboard."""
        return self._keyboard_focus

    def focusInEvent(self, event: QFocusEvent) -> None:
        self._keyboard_focus = event.reason() in BY_KEYBOARD
        if self._keyboard_focus and not self.ring_inside:
            _ring_of(self.window()).surround(self, self.ring_radius)
        self.update()
        super().focusInEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._keyboard_focus = False
        self.update()
        super().focusOutEvent(event)


class Pressable(KeyboardFocus):
    """Mixin that calls `press` on Return and Enter, and on Space if the widget is not a button."""

    def press(self) -> None:
        """Act as on a click."""
        assert isinstance(self, QAbstractButton)
        self.click()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        space = event.key() == Qt.Key.Key_Space and not isinstance(self, QAbstractButton)
        if space or event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.press()
        else:
            super().keyPressEvent(event)


def _ring_of(window: QWidget) -> FocusRing:
    ring = window.findChild(FocusRing)
    return ring if ring is not None else FocusRing(window)


def _host_of(target: QWidget) -> QWidget:
    """Nearest ancestor with room for the ring, so that it scrolls with the target."""
    host = target.parentWidget() or target
    room = QRect(0, 0, target.width(), target.height()).adjusted(-_GAP, -_GAP, _GAP, _GAP)
    while host.parentWidget() is not None and not host.isWindow():
        if isinstance(host.parentWidget(), QAbstractScrollArea):
            break
        if host.rect().contains(room.translated(target.mapTo(host, QPoint(0, 0)))):
            break
        host = host.parentWidget() or host
    return host
