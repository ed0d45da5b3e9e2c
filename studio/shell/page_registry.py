"""All pages by key, and connections between them."""

from functools import partial
from pathlib import Path

from engine.protocol.records.runs import Split
from engine.protocol.requests.runs import TrajectoryQuery
from studio.actions.actions import Actions
from studio.pages.checkpoints.page import CheckpointsPage
from studio.pages.home.page import HomePage
from studio.pages.judge.page import JudgePage
from studio.pages.page import Page
from studio.pages.run.page import RunPage
from studio.pages.settings.page import SettingsPage
from studio.pages.setup.page import SetupPage
from studio.pages.trajectories.page import TrajectoriesPage
from studio.services.session import Session


def make_pages(session: Session, actions: Actions, workspace: Path) -> dict[str, Page]:
    """Build the pages; keys are those of the sidebar."""
    run, trajectories = RunPage(session, actions), TrajectoriesPage(session, actions)

    def show_trajectories(query: TrajectoryQuery) -> None:
        session.place_wanted.emit("trajectories")
        trajectories.show_query(query)

    judge = JudgePage(session, actions)

    def show_group(split: Split, step: int, group: int, blind: bool = False) -> None:
        session.place_wanted.emit("trajectories")
        trajectories.show_group(split, step, group, blind)

    checkpoints = CheckpointsPage(session, actions)
    checkpoints.branch_wanted.connect(run.open_branch)
    run.trajectories_wanted.connect(show_trajectories)
    judge.group_wanted.connect(show_group)
    judge.grading_wanted.connect(partial(show_group, blind=True))
    trajectories.grading_wanted.connect(judge.grade_next)
    return {
        "home": HomePage(session, actions, workspace),
        "setup": SetupPage(session, actions),
        "judge": judge,
        "run": run,
        "trajectories": trajectories,
        "checkpoints": checkpoints,
        "settings": SettingsPage(session, actions, workspace),
    }
