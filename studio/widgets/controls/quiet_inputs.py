"""Spin boxes and combo boxes of forms: uniform height and font, and no reaction to the mouse
wheel."""

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QComboBox,
    QSpinBox,
    QStyle,
    QStyleOptionComboBox,
    QStylePainter,
    QWidget,
)

from studio.theme.theme import theme
from studio.widgets.painting.focus import KeyboardFocus

EDGE_PX = 2
"""Padding that a style leaves at both ends of the text."""


class _NoWheel(QObject):
    """Mixin that ignores the wheel unless the editor has the focus, so that scrolling a form
    changes no value."""

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() != QEvent.Type.Wheel or not isinstance(watched, QWidget):
            return False
        if not watched.hasFocus():
            event.ignore()
            return True
        return False


class QuietSpin(KeyboardFocus, QSpinBox):
    def __init__(self) -> None:
        super().__init__()
        self.setFont(theme().font("body"))
        self.lineEdit().setTextMargins(8, 0, 0, 0)
        self.setFixedHeight(32)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCorrectionMode(QAbstractSpinBox.CorrectionMode.CorrectToNearestValue)
        self.installEventFilter(_NoWheel(self))


class QuietCombo(KeyboardFocus, QComboBox):
    def __init__(self) -> None:
        super().__init__()
        self.setFont(theme().font("body"))
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.installEventFilter(_NoWheel(self))

    def shown_words(self) -> str:
        """Selected text, shortened if it does not fit."""
        option = QStyleOptionComboBox()
        self.initStyleOption(option)
        kind, part = QStyle.ComplexControl.CC_ComboBox, QStyle.SubControl.SC_ComboBoxEditField
        room = self.style().subControlRect(kind, option, part, self).width() - 2 * EDGE_PX
        return option.fontMetrics.elidedText(option.currentText, Qt.TextElideMode.ElideRight, room)  # type: ignore[attr-defined]

    def paintEvent(self, event: QPaintEvent) -> None:
        option = QStyleOptionComboBox()
        self.initStyleOption(option)
        option.currentText = self.shown_words()  # type: ignore[attr-defined]
        painter = QStylePainter(self)
        painter.drawComplexControl(QStyle.ComplexControl.CC_ComboBox, option)
        if not self.isEditable():
            painter.drawControl(QStyle.ControlElement.CE_ComboBoxLabel, option)
        painter.end()
