"""All pages by key, and the few wires between them."""

from pathlib import Path

from engine.protocol.requests import TrajectoryQuery
from studio.actions import Actions
from studio.pages.checkpoints import CheckpointsPage
from studio.pages.home.page import HomePage
from studio.pages.judge.page import JudgePage
from studio.pages.page import Page
from studio.pages.run.page import RunPage
from studio.pages.settings import SettingsPage
from studio.pages.setup.page import SetupPage
from studio.pages.trajectories.page import TrajectoriesPage
from studio.session import Session


def make_pages(session: Session, actions: Actions, workspace: Path) -> dict[str, Page]:
    """Keys are those of the sidebar."""
    run, trajectories = RunPage(session, actions), TrajectoriesPage(session, actions)

    def show_trajectories(query: TrajectoryQuery) -> None:
        session.place_wanted.emit("trajectories")
        trajectories.show_query(query)

    run.trajectories_wanted.connect(show_trajectories)
    return {
        "home": HomePage(session, actions, workspace),
        "setup": SetupPage(session, actions),
        "judge": JudgePage(session, actions),
        "run": run,
        "trajectories": trajectories,
        "checkpoints": CheckpointsPage(session, actions),
        "settings": SettingsPage(session, actions, workspace),
    }
