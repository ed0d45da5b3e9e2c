"""Line of clickable shortcuts; the least important are hidden if there is no room."""

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QMouseEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.theme.plain_tooltips import set_tip
from studio.widgets.controls.keycap import KeyCap

_GAP = 14


class _Key(KeyCap):
    """Clickable key cap. Key presses are handled by the page."""

    clicked = Signal()

    def __init__(self, key: str, words: str, tip: str, parent: QWidget) -> None:
        super().__init__(key, words, parent)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        set_tip(self, tip)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton and self.rect().contains(event.pos()):
            self.clicked.emit()


class KeyLine(QWidget):
    """Line of keys: `add("veto", "V", "veto", "Veto: reward 0", rank=3)`; `key_clicked(id)`. The
    highest rank is hidden first if there is no room."""

    key_clicked = Signal(str)

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._keys: dict[str, tuple[_Key, int]] = {}
        self._withheld: set[str] = set()
        self.setAccessibleName(name)
        self.setFixedHeight(20)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def add(self, key_id: str, key: str, words: str, tip: str, rank: int = 0) -> None:
        """Append a key with text and tooltip; keys with the highest `rank` are hidden first."""
        cap = _Key(key, words, tip, self)
        cap.clicked.connect(lambda: self.key_clicked.emit(key_id))
        self._keys[key_id] = (cap, rank)
        self._place()

    def set_pressed(self, pressed: Sequence[str]) -> None:
        """Show the keys with the ids `pressed` as active, and no others."""
        for key_id, (cap, _) in self._keys.items():
            cap.set_active(key_id in pressed)

    def set_key(self, key_id: str, key: str, words: str) -> None:
        """Change the key and text shown for the id `key_id`."""
        self._keys[key_id][0].set_key(key, words)
        self._place()

    def set_offered(self, key_id: str, offered: bool) -> None:
        """Show a key if there is room for it; with `offered` False, hide it in any case."""
        withheld = self._withheld - {key_id} if offered else self._withheld | {key_id}
        if withheld != self._withheld:
            self._withheld = withheld
            self._place()

    def shown(self) -> list[str]:
        """Ids of the visible keys."""
        return [key_id for key_id, (cap, _) in self._keys.items() if not cap.isHidden()]

    def _place(self) -> None:
        left_out = set(self._withheld)
        for key_id in sorted(self._keys, key=lambda one: -self._keys[one][1]):
            if self._width(left_out) <= self.width():
                break
            left_out.add(key_id)
        x = 0
        for key_id, (cap, _) in self._keys.items():
            cap.setVisible(key_id not in left_out)
            if key_id not in left_out:
                cap.setGeometry(x, 0, cap.sizeHint().width(), 20)
                x += cap.width() + _GAP

    def _width(self, left_out: set[str]) -> int:
        shown = [cap for key_id, (cap, _) in self._keys.items() if key_id not in left_out]
        return sum(cap.sizeHint().width() for cap in shown) + _GAP * max(0, len(shown) - 1)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()

    def sizeHint(self) -> QSize:
        return QSize(self._width(self._withheld), 20)

    def minimumSizeHint(self) -> QSize:
        return QSize(120, 20)
