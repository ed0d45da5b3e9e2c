"""What an agent needs to call tools: its packages, and below them its MCP servers."""

from collections.abc import Callable

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from studio.pages.tools.packages import AgentPackages
from studio.pages.tools.servers import ToolServers
from studio.runtime.tasks import TaskScope
from studio.services.session import Session


class AgentTools(QWidget):
    """`look()` asks how both are; `changed()` when either is another one."""

    changed = Signal()

    def __init__(
        self, session: Session, tasks: TaskScope, host: QWidget, of: Callable[[], tuple[str, str]]
    ) -> None:
        """`host` is what sheets slide over; `of` gives a project's folder, and the file of its
        packages."""
        super().__init__()
        self.packages = AgentPackages(session, tasks, of)
        self.servers = ToolServers(session, tasks, host, lambda: of()[0])
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        for part in (self.packages, self.servers):
            column.addWidget(part)
        self.packages.changed.connect(self._packages_changed)
        self.servers.changed.connect(self.changed)

    @property
    def lacking(self) -> str:
        """Why an attempt could not be made; empty where nothing is in its way."""
        return self.packages.lacking

    def look(self) -> None:
        self.packages.look()
        self.servers.load()

    def _packages_changed(self) -> None:
        self.servers.set_lacking(self.lacking)
        self.changed.emit()
