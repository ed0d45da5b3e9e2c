"""Row of a group in progress: name, dots, count or state. 30 px high; a click opens the group."""

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from studio.theme.plain_tooltips import set_tip
from studio.widgets.painting import paint
from studio.widgets.painting.focus import Pressable
from studio.widgets.tables.group_dots import paint_group_dots

_DOTS_PX, _TAIL_PX = 66, 78


class GroupRow(Pressable, QAbstractButton):
    """Group row: `set_group("Dana's Lisbon flight", rewards, "8/8")`; tail tone warn for "no
    signal"."""

    ring_inside = True

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._rewards: tuple[float | None, ...] = ()
        self._tail, self._tail_tone = "", "faint"
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_group(
        self, name: str, rewards: Sequence[float | None], tail: str, tone: str = "faint"
    ) -> None:
        """Set name, dots of the rewards, and the text `tail` at the end, in the colour `tone`."""
        self.setText(name)
        self._rewards, self._tail, self._tail_tone = tuple(rewards), tail, tone
        self.setAccessibleName(f"Group {name}, {tail}")
        set_tip(self, name if paint.text_width(name) > self._name_px() else "")
        self.update()

    def _name_px(self) -> float:
        return self.width() - _DOTS_PX - _TAIL_PX - 18

    def sizeHint(self) -> QSize:
        return QSize(240, 30)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            if self.underMouse() or self.isDown():
                paint.box(painter, self.rect(), "hover", None, 4)
            inside = QRectF(self.rect()).adjusted(6, 0, -6, 0)
            name = QRectF(inside.left(), 0, self._name_px(), self.height())
            paint.text(painter, name, self.text(), "text", "label", 400)
            dots = QRectF(inside.right() - _TAIL_PX - _DOTS_PX, 0, _DOTS_PX, self.height())
            paint_group_dots(painter, dots, self._rewards)
            paint.text(painter, inside, self._tail, self._tail_tone, "caption", align=paint.RIGHT)
            if self.keyboard_focus:
                paint.focus_ring(painter, self.rect(), 4)
