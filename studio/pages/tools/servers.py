"""MCP servers of a project: add, list tools, select tools, remove."""

from collections.abc import Callable, Coroutine
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.config.mcp import McpServer, ServerViews, SetServer
from engine.protocol.problems import Problem
from engine.protocol.requests.drafts import ToolView
from studio.pages.tools.server_row import ServerRow
from studio.pages.tools.server_sheet import ServerSheet
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.store.projects import mcp
from studio.widgets.cards.card import Card
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import add, vbox
from studio.widgets.text.text import Text


class ToolServers(Card):
    """Card of the MCP servers in mcp.json, shown if the agent reads this file. Emits `changed()`
    when servers or tools change."""

    changed = Signal()
    listed = Signal()
    """Emitted when the servers have listed their tools."""

    def __init__(
        self, session: Session, tasks: TaskScope, host: QWidget, of: Callable[[], str]
    ) -> None:
        """Create the card; `host` is the parent of sheets, `of()` returns the project folder."""
        super().__init__("MCP servers", padding=12)
        self._session, self._tasks, self._of = session, tasks, of
        self.views, self._lacking, self._project = ServerViews(), "", ""
        self.sheet = ServerSheet(host)
        self._rows: dict[str, ServerRow] = {}
        self._list = vbox(spacing=0)
        self._empty = Text(mcp.NONE, "label", 400, "muted", wrap=True)
        self._problem = Text("", "label", 400, "bad", wrap=True, selectable=True)
        self._note = Text("", "caption", 400, "warn", wrap=True)
        self._look = Button("List tools", "outlined", icon="search-check")
        self._add = Button("Add a server…", "quiet", icon="plus")
        self._build()
        self.setVisible(False)

    @property
    def offered(self) -> list[ToolView]:
        """Return the tools offered to the agent, as far as they were listed."""
        return mcp.offered(self.views)

    def load(self) -> None:
        """Load the MCP servers of the project; lists of tools requested before are kept."""
        if self._of() != self._project:
            self._turn(self._of())
        if self._project and self._session.connected:
            self._ask("servers", self._session.client.servers(self._project))
        elif not self._project:
            self._show(ServerViews())

    def show_views(self, views: ServerViews) -> None:
        """Show the MCP servers' states, as returned by the engine to another request."""
        if self._of() != self._project:
            self._turn(self._of())
        self._show(views)

    def set_lacking(self, words: str) -> None:
        """Set why tools cannot be listed yet (missing packages); empty words allow it."""
        self._lacking = words
        self._note.set_words(f"{words}: tools can be listed after installation." if words else "")
        self._show_buttons()

    def look(self) -> None:
        """Request the list of tools from each MCP server."""
        self._refuse(None)
        self._look.set_busy("Listing tools")
        call = self._session.client.look_at_servers(self._project)
        self._tasks.run("look", call, self._seen, self._refuse)

    def _seen(self, views: ServerViews) -> None:
        self._show(views)
        self.listed.emit()

    def add(self) -> None:
        self.sheet.begin({view.name for view in self.views.servers})

    def _build(self) -> None:
        assert self.header is not None
        self.header.add_right(self._look)
        self.header.add_right(self._add)
        add(self.body, self._list, self._empty, self._problem, self._note)
        self._look.clicked.connect(self.look)
        self._add.clicked.connect(self.add)
        self.sheet.entered.connect(self._enter)

    def _turn(self, project: str) -> None:
        """Switch to another project; pending responses of the previous one are ignored."""
        for job in ("servers", "look", "set server", *(f"choose {name}" for name in self._rows)):
            self._tasks.cancel(job)
        if self.sheet.is_open():
            self.sheet.close_sheet()
        self._project, self.views = project, ServerViews()
        self._show(self.views)

    def _enter(self, request: SetServer) -> None:
        def added(views: ServerViews) -> None:
            self._show(views)
            self.sheet.close_sheet()
            if not self._lacking:
                self.look()

        call = self._session.client.set_server(self._project, request)
        self._tasks.run("set server", call, added, self.sheet.refuse)

    def _remove(self, name: str) -> None:
        request = SetServer(name=name)
        self._ask("set server", self._session.client.set_server(self._project, request))

    def _choose(self, name: str, tool: str, on: bool) -> None:
        """Update the selection immediately, so that the next choice builds on it."""
        view = next(view for view in self.views.servers if view.name == name)
        request = SetServer(name=name, server=mcp.chosen_values(view, tool, on))
        chosen = view.model_copy(update={"server": McpServer.model_validate(request.server)})
        servers = [chosen if one.name == name else one for one in self.views.servers]
        self._show(self.views.model_copy(update={"servers": servers}))
        self._ask(f"choose {name}", self._session.client.set_server(self._project, request))

    def _ask(self, job: str, call: Coroutine[Any, Any, ServerViews]) -> None:
        self._tasks.run(job, call, self._show, self._refuse)

    def _refuse(self, problem: Problem | None) -> None:
        self._look.set_busy(None)
        self._problem.set_words(f"{problem.message} {problem.hint}".strip() if problem else "")
        self._problem.setVisible(problem is not None)
        if problem is not None:
            self.setVisible(True)

    def _show(self, views: ServerViews) -> None:
        self._refuse(None)
        self.views = mcp.kept_looks(views, self.views)
        for name in set(self._rows) - {view.name for view in self.views.servers}:
            self._rows.pop(name).deleteLater()
        for place, view in enumerate(self.views.servers):
            if view.name in self._rows:
                self._rows[view.name].show_view(view)
            else:
                self._list.insertWidget(place, self._row_of(view.name, place))
        self._empty.setVisible(not self.views.servers)
        self.setVisible(bool(self.views.servers) or self.views.read)
        self._show_buttons()
        self.changed.emit()

    def _row_of(self, name: str, place: int) -> ServerRow:
        row = self._rows[name] = ServerRow(self.views.servers[place])
        row.remove_wanted.connect(self._remove)
        row.tool_chosen.connect(self._choose)
        return row

    def _show_buttons(self) -> None:
        self._note.setVisible(bool(self._lacking and self.views.servers))
        self._look.setEnabled(bool(self.views.servers) and not self._lacking)
