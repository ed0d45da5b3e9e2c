"""Empty states of the Trajectories page: no run, no trajectories, or no match."""

from engine.protocol.requests.runs import TrajectoryQuery
from studio.models.groups import GroupListModel
from studio.models.run import RunModel
from studio.text import formatting
from studio.widgets.cards.empty_page import EmptyPage


class NoTrajectories(EmptyPage):
    """Empty state of the page: text and button. The page handles clicks on the button."""

    def __init__(self) -> None:
        super().__init__("No trajectories yet", "", drawing="rows")

    def show_state(self, run: RunModel, groups: GroupListModel, has_source: bool) -> bool:
        """Show why there is nothing to read: the run is damaged, filters hide everything, or there
        are no trajectories. `has_source`: a run can be read. Returns whether this page is needed:
        no group is listed, or there is no such run."""
        nothing = groups.is_loaded and not groups.total
        if run.damaged:
            self.say_damaged()
        elif nothing and groups.query != TrajectoryQuery():
            self.say_hidden(run.state.trajectories)
        elif nothing or not has_source:
            self.say_none()
        return nothing or not has_source

    def say_hidden(self, count: int) -> None:
        """Show that filters hide all `count` trajectories."""
        words = f"The filters hide {formatting.plural(count, 'trajectory', 'trajectories')}."
        self.set_words("No matching groups", words)
        self.set_actions("Clear filters", icon="x")

    def say_damaged(self) -> None:
        """Show that the run is damaged."""
        self.set_words("The run is damaged", "Repair the run to read its trajectories.")
        self.set_actions("Go to the run", icon="activity")

    def say_none(self) -> None:
        """Show that there are no trajectories yet."""
        words = "The first trajectories appear in step 1, a minute or two after training starts."
        self.set_words("No trajectories yet", words)
        self.set_actions("Go to the run", icon="activity")
