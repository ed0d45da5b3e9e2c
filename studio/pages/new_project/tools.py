"""MCP servers and packages of an agent, set up before scenarios are generated."""

from collections.abc import Callable

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFileDialog, QWidget

from engine.protocol.config.mcp import ServerViews
from engine.protocol.problems import Problem
from engine.protocol.requests.drafts import BeginWithTools
from studio.pages.tools.agent_tools import AgentTools
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.store.projects import mcp
from studio.widgets.controls.buttons import Button
from studio.widgets.controls.toggle import Toggle
from studio.widgets.layouts import STRETCH, hbox, vbox
from studio.widgets.text.text import Text

REQUIREMENTS = "requirements.txt"
WORDS = (
    "The generated scenarios use these tools. The project folder is created first, so that "
    "packages can be installed and tools listed; this step is free."
)


class ToolsPart(QWidget):
    """Editor of the tools. `folder()` returns the project folder, or shows an error and returns
    an empty string."""

    changed = Signal()
    created = Signal()

    def __init__(
        self, session: Session, tasks: TaskScope, host: QWidget, folder: Callable[[], str]
    ) -> None:
        super().__init__()
        self._session, self._tasks, self._folder_of = session, tasks, folder
        self._folder, self._is_listed = "", False
        self.wanted = Toggle("The agent uses tools from MCP servers")
        self._words = Text(WORDS, "label", 400, "muted", wrap=True)
        self._file = Button("Choose an mcp.json…", "outlined", icon="folder-open")
        self._one = Button("Add a server…", "outlined", icon="plus")
        self._problem = Text("", "label", 400, "bad", wrap=True, selectable=True)
        self._tools = AgentTools(session, tasks, host, self._requirements)
        self.servers, self._packages = self._tools.servers, self._tools.packages
        self._build()
        self._wire()

    def begin(self, folder: str = "") -> None:
        """Start editing the tools of a new project, or of the project in `folder`."""
        self._folder, self._is_listed = folder, False
        self.wanted.setChecked(bool(folder))
        self._say(None)
        self._tools.look()
        self._show()

    def problem(self) -> str:
        """Return why scenarios cannot be generated yet, or an empty string."""
        if not self.wanted.isChecked():
            return ""
        return self._tools.lacking or mcp.not_ready(self.servers.views)

    def bring(self, file: str) -> None:
        """Add the servers of the mcp.json at path `file` to the project, created if necessary."""
        self._is_listed = False
        self._make(file, lambda: None)

    def _build(self) -> None:
        line = hbox(self._file, self._one, STRETCH, spacing=8)
        vbox(self.wanted, self._words, line, self._problem, self._tools, parent=self, spacing=8)

    def _wire(self) -> None:
        self.wanted.clicked.connect(lambda _: self._show())
        self._file.clicked.connect(self._choose)
        self._one.clicked.connect(lambda: self._make("", self.servers.add))
        self._tools.changed.connect(self._tools_changed)

    def _requirements(self) -> tuple[str, str]:
        return self._folder, REQUIREMENTS if self._folder else ""

    def _choose(self) -> None:
        dialog = QFileDialog(self, "Choose an mcp.json", "", "MCP servers (*.json)")
        dialog.fileSelected.connect(self.bring)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _make(self, file: str, done: Callable[[], None]) -> None:
        """Create the project folder with the servers in `file` (empty: none); then call `done`."""
        if not (folder := self._folder or self._folder_of()):
            return
        request = BeginWithTools(folder=folder, servers=file)

        def made(views: ServerViews) -> None:
            self._folder = folder
            self._say(None)
            self.servers.show_views(views)
            self._packages.look()
            self._show()
            self.created.emit()
            done()

        call = self._session.client.begin_with_tools(request)
        self._tasks.run("create the project with tools", call, made, self._say)

    def _tools_changed(self) -> None:
        """List the tools once the packages are installed."""
        if self._ready and not self._is_listed:
            self._is_listed = True
            self.servers.look()
        self.changed.emit()

    @property
    def _ready(self) -> bool:
        unseen = [view for view in self.servers.views.servers if not view.is_listed]
        return bool(self._folder and unseen and self._packages.known and not self._tools.lacking)

    def _say(self, problem: Problem | None) -> None:
        self._problem.set_words(f"{problem.message} {problem.hint}".strip() if problem else "")
        self._problem.setVisible(problem is not None)

    def _show(self) -> None:
        wanted = self.wanted.isChecked()
        self._file.setVisible(wanted)
        self._one.setVisible(wanted and not self._folder)
        self._words.setVisible(wanted and not self._folder)
        self._tools.setVisible(wanted and bool(self._folder))
        self._problem.setVisible(wanted and bool(self._problem.words()))
        self.changed.emit()
