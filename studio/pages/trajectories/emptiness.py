"""What the page says when there is nothing in it: no run, nothing yet, or filters that hide all."""

from studio import figures
from studio.widgets.empty_page import EmptyPage


class Emptiness(EmptyPage):
    """`say_hidden(count)` or `say_none()`; whoever wires it does what the button offers."""

    def __init__(self) -> None:
        super().__init__("Nothing to read yet", "", drawing="rows")

    def say_hidden(self, count: int) -> None:
        """Filters hide so many trajectories."""
        words = f"The filters hide {figures.plural(count, 'trajectory', 'trajectories')}."
        self.set_words("No group matches", words)
        self.set_actions("Clear filters", icon="x")

    def say_none(self) -> None:
        """There are none."""
        words = "The first arrive with the first step, a minute or two after Train."
        self.set_words("Nothing to read yet", words)
        self.set_actions("Go to the run", icon="activity")
