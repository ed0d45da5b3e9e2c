"""State chip of the header: icon and text of the run's state."""

from PySide6.QtCore import QSize
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.theme.plain_tooltips import set_tip
from studio.widgets.text.chip import Chip

LEAST_PX = 170
"""Width down to which a narrow header elides the text; the engine's facts yield before."""
# state -> (tone, icon)
STATES = {
    "none": ("neutral", "circle-dashed"),
    "alive": ("accent", "activity"),
    "pausing": ("warn", "pause"),
    "paused": ("warn", "pause"),
    "review": ("human", "hand"),
    "stopped": ("bad", "octagon-alert"),
    "finished": ("good", "check"),
}


class StateChip(Chip):
    """State chip: `set_run_state("alive", "Step 47 · judging")`; none, alive, paused, review,
    stopped, finished."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("No run yet", height=24, parent=parent)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.set_run_state("none", "No run yet")

    def set_state(self, words: str, tone: str = "neutral", icon: str = "") -> None:
        """Set text, colour and icon; the tooltip has the text, which may be elided."""
        super().set_state(words, tone, icon)
        set_tip(self, words)

    def minimumSizeHint(self) -> QSize:
        return QSize(min(LEAST_PX, self.sizeHint().width()), self.sizeHint().height())

    def set_run_state(self, state: str, words: str) -> None:
        """Show a run's state: `state` sets icon and colour, `words` the text."""
        tone, icon = STATES[state]
        self.set_state(words, tone, icon)
        self.setAccessibleName(f"Run: {words}")
