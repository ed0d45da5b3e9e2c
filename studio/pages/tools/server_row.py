"""Row of an MCP server: transport, state and tools offered to the agent."""

from PySide6.QtCore import Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QWidget

from engine.protocol.config.mcp import ServerView
from engine.protocol.requests.drafts import ToolView
from studio.store.projects.mcp import chip_of, problem_words
from studio.theme.theme import theme
from studio.widgets.controls.buttons import IconButton
from studio.widgets.controls.toggle import Toggle
from studio.widgets.layouts import STRETCH, hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.text.chip import Chip
from studio.widgets.text.text import Text

TOOL_PX, FIRST_PX = 156, 60
"""Width of a tool name in px; y up to which a row is the first of its card, without a rule."""


class ServerRow(QWidget):
    """Row of an MCP server; emits `remove_wanted(name)` and `tool_chosen(name, tool, on)`."""

    remove_wanted = Signal(str)
    tool_chosen = Signal(str, str, bool)

    def __init__(self, view: ServerView, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.name = view.name
        self._chip = Chip()
        self._address = Text("", "mono-small", 400, "muted", elide=True)
        self._problem = Text("", "caption", 400, "bad", wrap=True, selectable=True)
        self.tools: dict[str, Toggle] = {}
        self._tool_box = vbox(spacing=2)
        self._build()
        self.show_view(view)

    def show_view(self, view: ServerView) -> None:
        """Update the row of the same server; the focused tool keeps the focus."""
        self.setAccessibleName(f"MCP server {view.name}, {chip_of(view)[0]}")
        self._address.set_words(view.server.address)
        self._chip.set_state(*chip_of(view))
        self._problem.set_words(problem_words(view))
        self._problem.setVisible(view.problem is not None)
        if list(self.tools) != [tool.name for tool in view.tools]:
            self._make_tools(view.tools)
        offered = {tool.name for tool in view.offered}
        for name, toggle in self.tools.items():
            toggle.setChecked(name in offered)

    def _build(self) -> None:
        self._remove = IconButton("trash-2", f"Remove {self.name}")
        self._remove.clicked.connect(lambda: self.remove_wanted.emit(self.name))
        head = hbox(
            Text(self.name, "body", 600), self._chip, (self._address, 1), self._remove, spacing=10
        )
        vbox(head, self._problem, self._tool_box, parent=self, margins=(0, 8, 0, 8), spacing=4)

    def _make_tools(self, tools: list[ToolView]) -> None:
        while (item := self._tool_box.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.deleteLater()
        self.tools = {}
        for tool in tools:
            self._tool_box.addWidget(self._tool_line(tool))

    def _tool_line(self, tool: ToolView) -> QWidget:
        toggle = Toggle(tool.name)
        toggle.setAccessibleDescription(tool.description)
        toggle.clicked.connect(lambda on: self.tool_chosen.emit(self.name, tool.name, on))
        self.tools[tool.name] = toggle
        line = QWidget()
        row = hbox(parent=line, margins=(0, 2, 0, 2), spacing=12)
        holder = QWidget()
        holder.setMinimumWidth(TOOL_PX)
        hbox(toggle, STRETCH, parent=holder)
        row.addWidget(holder)
        words = " ".join(tool.description.split())
        row.addWidget(Text(words or "No description.", "label", 400, "muted",
                           elide=True), 1)  # fmt: skip
        return line

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            if self.y() > FIRST_PX:
                painter.fillRect(0, 0, self.width(), 1, theme().color("border"))
