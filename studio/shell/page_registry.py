"""All pages by key, and connections between them."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QObject, QTimer

from engine.protocol.records.runs import Split
from engine.protocol.requests.runs import TrajectoryQuery
from studio.actions.actions import Actions
from studio.pages.checkpoints.page import CheckpointsPage
from studio.pages.home.page import HomePage
from studio.pages.judge.page import JudgePage
from studio.pages.models.page import ModelsPage
from studio.pages.page import Page
from studio.pages.run.page import RunPage
from studio.pages.runs.page import RunsPage
from studio.pages.settings.page import SettingsPage
from studio.pages.setup.page import SetupPage
from studio.pages.trajectories.page import TrajectoriesPage
from studio.services.session import Session
from studio.store.runs.chat import TurnPrompt

KEYS = (
    "home",
    "runs",
    "setup",
    "judge",
    "run",
    "trajectories",
    "checkpoints",
    "models",
    "settings",
)
"""Keys of the pages, in the order of the sidebar."""
P = TypeVar("P", bound=Page)
PAUSE_MS = 20
"""Pause in ms between pages that are built ahead, so that the window stays responsive."""


class PageRegistry(Mapping[str, Page]):
    """Pages by key; each is built on first access and passed to `on_built(key, page)`."""

    def __init__(
        self,
        session: Session,
        actions: Actions,
        workspace: Path,
        on_built: Callable[[str, Page], None],
    ) -> None:
        self._session, self._actions, self._workspace = session, actions, workspace
        self._on_built = on_built
        self.built: dict[str, Page] = {}
        self._closed = False

    def __getitem__(self, key: str) -> Page:
        if key not in self.built:
            self.built[key] = self._build(key)
            self._on_built(key, self.built[key])
        return self.built[key]

    def __contains__(self, key: object) -> bool:
        return key in KEYS

    def __iter__(self) -> Iterator[str]:
        return iter(KEYS)

    def __len__(self) -> int:
        return len(KEYS)

    def typed(self, key: str, kind: type[P]) -> P:
        """Return the page with this key, built on first use; asserts that it is of class `kind`."""
        page = self[key]
        assert isinstance(page, kind)
        return page

    def build_ahead(self, context: QObject) -> None:
        """Build the remaining pages one after the other, with pauses. Stops when `context` is
        destroyed."""
        left = [key for key in KEYS if key not in self.built]
        if left and not self._closed:
            self[left[0]]
            QTimer.singleShot(PAUSE_MS, context, partial(self.build_ahead, context))

    async def close(self) -> None:
        """Build no further page ahead, and end the tasks of all pages, also of one that is shown
        for the first time meanwhile."""
        self._closed = True
        closed: set[str] = set()
        while left := [key for key in self.built if key not in closed]:
            for key in left:
                await self.built[key].close_tasks()
            closed.update(left)

    def _build(self, key: str) -> Page:
        session, actions, workspace = self._session, self._actions, self._workspace
        match key:
            case "home":
                return HomePage(session, actions, workspace)
            case "runs":
                return RunsPage(session, actions)
            case "setup":
                return SetupPage(session, actions)
            case "judge":
                judge = JudgePage(session, actions)
                judge.group_wanted.connect(self._show_group)
                judge.grading_wanted.connect(partial(self._show_group, blind=True))
                return judge
            case "run":
                run = RunPage(session, actions)
                run.trajectories_wanted.connect(self._show_trajectories)
                return run
            case "trajectories":
                trajectories = TrajectoriesPage(session, actions)
                trajectories.grading_wanted.connect(
                    lambda: self.typed("judge", JudgePage).grade_next()
                )
                trajectories.chat_wanted.connect(self._open_chat)
                return trajectories
            case "checkpoints":
                checkpoints = CheckpointsPage(session, actions)
                checkpoints.branch_wanted.connect(
                    lambda step: self.typed("run", RunPage).open_branch(step)
                )
                return checkpoints
            case "models":
                return ModelsPage(session)
            case "settings":
                return SettingsPage(session, actions, workspace)
        raise KeyError(key)

    def open_review_queue(self) -> None:
        """Show the review queue of the selected run."""
        self._session.place_wanted.emit("trajectories")
        self.typed("trajectories", TrajectoriesPage).review_next()

    def _show_trajectories(self, query: TrajectoryQuery) -> None:
        self._session.place_wanted.emit("trajectories")
        self.typed("trajectories", TrajectoriesPage).show_query(query)

    def _open_chat(self, prompt: TurnPrompt) -> None:
        self._session.place_wanted.emit("checkpoints")
        self.typed("checkpoints", CheckpointsPage).open_prompt(prompt)

    def _show_group(self, split: Split, step: int, group: int, blind: bool = False) -> None:
        self._session.place_wanted.emit("trajectories")
        self.typed("trajectories", TrajectoriesPage).show_group(split, step, group, blind)
