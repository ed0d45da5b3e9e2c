"""Tools of an agent: Python packages and MCP servers."""

from collections.abc import Callable

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from studio.pages.tools.packages import AgentPackages
from studio.pages.tools.servers import ToolServers
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.widgets.layouts import vbox


class AgentTools(QWidget):
    """Packages and MCP servers: `look()` reloads both; emits `changed()`."""

    changed = Signal()

    def __init__(
        self, session: Session, tasks: TaskScope, host: QWidget, of: Callable[[], tuple[str, str]]
    ) -> None:
        """Create the widget over `host`, the parent of sheets; `of()` returns project and file."""
        super().__init__()
        self.packages = AgentPackages(session, tasks, of)
        self.servers = ToolServers(session, tasks, host, lambda: of()[0])
        vbox(self.packages, self.servers, parent=self, spacing=8)
        self.packages.changed.connect(self._packages_changed)
        self.servers.changed.connect(self.changed)

    @property
    def lacking(self) -> str:
        """Return why a rollout cannot run (missing packages), or an empty string."""
        return self.packages.lacking

    def look(self) -> None:
        self.packages.look()
        self.servers.load()

    def _packages_changed(self) -> None:
        self.servers.set_lacking(self.lacking)
        self.changed.emit()
