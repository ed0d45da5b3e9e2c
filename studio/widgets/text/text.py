"""Plain text label in one style and tone; can be elided, with the full text as a tooltip."""

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from studio.theme.plain_tooltips import set_tip
from studio.theme.theme import theme


class Text(QLabel):
    """Plain text: `Text("Reward", "label", 600, "muted")`."""

    def __init__(
        self,
        words: str = "",
        style: str = "body",
        weight: int | None = None,
        tone: str = "text",
        parent: QWidget | None = None,
        *,
        wrap: bool = False,
        elide: bool = False,
        selectable: bool = False,
    ) -> None:
        super().__init__(parent)
        if selectable:
            mouse, keys = (
                Qt.TextInteractionFlag.TextSelectableByMouse,
                Qt.TextInteractionFlag.TextSelectableByKeyboard,
            )
            self.setTextInteractionFlags(mouse | keys)
        self._words = ""
        self._elide = elide
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setFont(theme().font(style, weight))
        self.setWordWrap(wrap)
        self.setProperty("tone", tone)
        if elide:
            self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.set_words(words)

    def set_words(self, words: str) -> None:
        if words == self._words:
            return
        self._words = words
        self.setAccessibleName(words)
        self._show()

    def set_tone(self, tone: str) -> None:
        """Set the text colour: text muted faint accent good warn bad info judge human rules."""
        if tone != self.property("tone"):
            self.setProperty("tone", tone)
            self.style().unpolish(self)
            self.style().polish(self)

    def words(self) -> str:
        """Full text, even if an elided one is displayed."""
        return self._words

    def _show(self) -> None:
        if not self._elide:
            self.setText(self._words)
            return
        metrics = QFontMetrics(self.font())
        shown = metrics.elidedText(self._words, Qt.TextElideMode.ElideRight, self.width())
        self.setText(shown)
        set_tip(self, self._words if shown != self._words else "")

    def minimumSizeHint(self) -> QSize:
        hint = super().minimumSizeHint()
        return QSize(24, hint.height()) if self._elide else hint

    def sizeHint(self) -> QSize:
        if not self._elide:
            return super().sizeHint()
        metrics = QFontMetrics(self.font())
        return QSize(metrics.horizontalAdvance(self._words) + 2, super().sizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._elide:
            self._show()
