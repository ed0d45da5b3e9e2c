"""Packages of the agent: installation state and Install button."""

import asyncio
from collections.abc import Callable

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.problems import Problem
from engine.protocol.records.machine.environments import EnvironmentAction, EnvironmentView
from studio.pages.environment_row import EnvironmentRow
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.store.projects.environments import packages_row
from studio.widgets.cards.card import Card
from studio.widgets.layouts import vbox

POLL_S = 0.5


class AgentPackages(QWidget):
    """Package state, shown if the project has a requirements file; emits `changed`."""

    changed = Signal()

    def __init__(
        self, session: Session, tasks: TaskScope, of: Callable[[], tuple[str, str]]
    ) -> None:
        """Create the widget; `of()` returns project folder and requirements file, or ""."""
        super().__init__()
        self._session, self._tasks, self._of = session, tasks, of
        self._view: EnvironmentView | None = None
        self._row = EnvironmentRow(first=True)
        self._row.pressed.connect(self._press)
        card = Card(padding=10)
        card.body.addWidget(self._row)
        vbox(card, parent=self)
        self.setVisible(False)

    @property
    def known(self) -> bool:
        """Return whether the engine has reported the state of the agent's packages."""
        return self._view is not None

    @property
    def lacking(self) -> str:
        """Return why a rollout cannot run (missing packages), or an empty string."""
        if self._view is None or self._view.state == "ready":
            return ""
        if self._view.action == "install":
            return "The agent's packages are being installed"
        return "The agent's packages are not installed"

    def look(self) -> None:
        """Load the state of the agent's packages, and poll it during an installation."""
        if not self._of()[1]:
            self._tasks.cancel("packages")
            self._show(None)
        elif self._session.connected:
            self._tasks.run("packages", self._watch(), failed=self._failed)

    async def _watch(self) -> None:
        project = self._of()[0]
        while True:
            found = await self._session.client.packages(project)
            self._show(found)
            if found is None or (found.action is None and not found.elsewhere):
                return
            await asyncio.sleep(POLL_S)

    def _press(self, verb: str) -> None:
        self._tasks.run("act on packages", self._act(verb), failed=self._failed)  # type: ignore[arg-type]

    async def _act(self, action: EnvironmentAction) -> None:
        self._show(await self._session.client.act_on_packages(self._of()[0], action))
        self.look()

    def _show(self, view: EnvironmentView | None) -> None:
        self._view = view
        if view is not None:
            self._row.show_row(packages_row(view, self._of()[1]))
        self.setVisible(view is not None)
        self.changed.emit()

    def _failed(self, problem: Problem) -> None:
        """Show a failed request beside the last known state."""
        if self._view is not None:
            self._show(self._view.model_copy(update={"problem": problem}))
