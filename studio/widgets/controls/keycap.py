"""Key cap: `Ctrl K`, drawn as a small key; active keys are ochre with their label next to them."""

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.widgets.painting import paint


class KeyCap(QWidget):
    """Key and, if given, its action."""

    def __init__(self, key: str, words: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._key, self._words, self._active = key, words, False
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(f"Key {key} {words}".strip())

    def set_active(self, active: bool) -> None:
        """Show the key as active, because the focused trajectory has its label."""
        self._active = active
        self.update()

    def set_key(self, key: str, words: str = "") -> None:
        """Change the key and its action (empty: only the key)."""
        self._key, self._words = key, words
        self.setAccessibleName(f"Key {key} {words}".strip())
        self.updateGeometry()
        self.update()

    def _cap_width(self) -> float:
        return max(18.0, paint.text_width(self._key, "mono-small") + 10)

    def sizeHint(self) -> QSize:
        words = 8 + paint.text_width(self._words, "label", 600) if self._words else 0
        return QSize(round(self._cap_width() + words) + 1, 20)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        tone = "human" if self._active else "muted"
        with paint.painting(self) as painter:
            cap = QRectF(0, 1, self._cap_width(), 18)
            fill = "human-soft" if self._active else "surface"
            paint.box(painter, cap, fill, "human-line" if self._active else "border-strong", 4)
            paint.text(painter, cap, self._key, tone, "mono-small", align=paint.CENTER, elide=False)
            if self._words:
                room = QRectF(cap.right() + 8, 0, self.width() - cap.right() - 8, self.height())
                words_tone = "human" if self._active else "text"
                paint.text(
                    painter, room, self._words, words_tone, "label", 600 if self._active else 400
                )
