"""Animation of one value: 120 ms for hover and toggles, 180 ms for sheets and folds."""

from PySide6.QtCore import QEasingCurve, QVariantAnimation
from PySide6.QtWidgets import QWidget

from studio.theme.theme import theme

HOVER_MS = 120
SHEET_MS = 180


class Glide(QVariantAnimation):
    """Animated number that repaints its widget. With reduced motion it jumps to the target."""

    def __init__(self, widget: QWidget, duration_ms: int = HOVER_MS, value: float = 0.0) -> None:
        super().__init__(widget)
        self._value = value
        self._target = value
        self.setDuration(duration_ms)
        self.setEasingCurve(QEasingCurve.Type.OutCubic)
        self.valueChanged.connect(self._moved)
        self.valueChanged.connect(widget.update)

    @property
    def value(self) -> float:
        return self._value

    def to(self, target: float) -> None:
        """Animate from the current value to `target`; with reduced motion, jump."""
        if target == self._target:
            return
        self._target = target
        self.stop()
        if theme().reduced_motion:
            self._moved(target)
            self.valueChanged.emit(target)
            self.finished.emit()
            return
        self.setStartValue(float(self._value))
        self.setEndValue(float(target))
        self.start()

    def _moved(self, value: object) -> None:
        if isinstance(value, (int, float)):
            self._value = float(value)
