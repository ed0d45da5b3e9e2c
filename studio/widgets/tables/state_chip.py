"""State chip of the header: icon and text of the run's state."""

from PySide6.QtWidgets import QWidget

from studio.widgets.text.chip import Chip

# state -> (tone, icon)
STATES = {
    "none": ("neutral", "circle-dashed"),
    "alive": ("accent", "activity"),
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
        self.set_run_state("none", "No run yet")

    def set_run_state(self, state: str, words: str) -> None:
        """Show a run's state: `state` sets icon and colour, `words` the text."""
        tone, icon = STATES[state]
        self.set_state(words, tone, icon)
        self.setAccessibleName(f"Run: {words}")
