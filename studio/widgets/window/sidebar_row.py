"""Row of the sidebar: icon, label and one live figure."""

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QKeyEvent, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from studio.theme.plain_tooltips import set_tip
from studio.widgets.painting import paint
from studio.widgets.painting.focus import KeyboardFocus


class SidebarRow(KeyboardFocus, QAbstractButton):
    """Row of 32 px; rest, hover, selected (checked), focus, disabled."""

    ring_inside = True

    def __init__(self, words: str, icon: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setText(words)
        self._icon, self._fact, self._fact_tone = icon, "", "muted"
        self._folded = False
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setCheckable(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.set_fact("")

    def set_fact(self, fact: str, tone: str = "muted") -> None:
        """Set the figure at the end of the row, such as τ 0.71, 46/120 or 2,944."""
        self._fact, self._fact_tone = fact, tone
        self.setAccessibleName(f"{self.text()}, {fact}" if fact else self.text())
        self.set_folded(self._folded)

    def set_folded(self, folded: bool) -> None:
        """Show only the icon; the rest is in the tooltip."""
        self._folded = folded
        set_tip(self, f"{self.text()}  {self._fact}".strip() if folded else "")
        self.update()

    def nextCheckState(self) -> None:
        """Ignore the click: the owner decides which row is selected."""

    def sizeHint(self) -> QSize:
        return QSize(40, 32)

    def paintEvent(self, event: QPaintEvent) -> None:
        on = self.isChecked()
        with paint.painting(self) as painter:
            if on or (self.underMouse() and self.isEnabled()):
                paint.box(painter, self.rect(), "selection" if on else "hover", None, 6)
            tone = "text" if on or self.underMouse() else "muted"
            tone = tone if self.isEnabled() else "faint"
            mark = "accent" if on else tone
            mark = mark if self.isEnabled() else "ghost"
            x = (self.width() - 16) / 2 if self._folded else 8
            paint.icon(painter, QPointF(x, 8), self._icon, mark, 16)
            if not self._folded:
                self._paint_words(painter, tone)
            if self.keyboard_focus:
                paint.focus_ring(painter, self.rect(), 6)

    def _paint_words(self, painter: paint.QPainter, tone: str) -> None:
        room = QRectF(34, 0, self.width() - 42, self.height())
        if self._fact and self.isEnabled():
            fact_tone = self._fact_tone if self._fact_tone != "muted" else "muted"
            used = paint.text(
                painter, room, self._fact, fact_tone, "caption", 400, paint.RIGHT, elide=False
            )
            room.setRight(room.right() - used - 6)
        paint.text(painter, room, self.text(), tone, "body", 500)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        match event.key():
            case Qt.Key.Key_Return | Qt.Key.Key_Enter:
                self.click()
            case Qt.Key.Key_Down:
                self.focusNextChild()
            case Qt.Key.Key_Up:
                self.focusPreviousChild()
            case _:
                super().keyPressEvent(event)
