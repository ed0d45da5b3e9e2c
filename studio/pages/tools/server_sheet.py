"""Sheet that adds an MCP server: name, and command or URL."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QLineEdit, QWidget

from engine.protocol.config.mcp import McpServer, SetServer
from engine.protocol.problems import Problem
from studio.store.projects.mcp import entered_values
from studio.widgets.cards.sheet import Sheet
from studio.widgets.controls.buttons import Button
from studio.widgets.forms.form import FormRow
from studio.widgets.forms.form_fields import Field, NumberField, SegmentedField, TextField
from studio.widgets.layouts import STRETCH, add
from studio.widgets.text.text import Text

LABEL_PX = 104
WORDS = (
    "An MCP server offers tools over a standard protocol. A local command is started "
    "once per rollout, so rollouts are isolated; a URL is shared by all rollouts."
)
SECRETS = (
    "Saved in mcp.json of the project. Add headers and env in that file by hand; secrets "
    "in it are shared with the project."
)
WAYS = (("command", "Local command"), ("url", "URL"))
NAME = "Letters, digits, dash and underscore; at most 64."


class ServerSheet(Sheet):
    """Sheet, opened by `begin(taken)`. Emits `entered(SetServer)`; the receiver closes it or calls
    `refuse`."""

    entered = Signal(object)

    def __init__(self, host: QWidget) -> None:
        super().__init__("Add an MCP server", host)
        self._taken: set[str] = set()
        self.name = TextField("Name", "library")
        self.way = SegmentedField("Transport", WAYS)
        self.command = TextField("Command", "npx -y @org/server --flag", mono=True)
        self.url = TextField("URL", "https://host/mcp", mono=True)
        self.timeout = NumberField("Timeout in seconds", 0.1, 3600)
        self._rows = {
            key: FormRow(key, label, field, help=help, label_px=LABEL_PX)
            for key, label, field, help in self._fields()
        }
        self._problem = Text("", "label", 400, "bad", wrap=True, selectable=True)
        self._add = Button("Add", "primary", icon="plus", height=32)
        self._build()

    def begin(self, taken: set[str]) -> None:
        """Clear the form and open the sheet; `taken` are server names in use."""
        self._taken = taken
        for field in (self.name, self.command, self.url):
            field.set_value("")
        self.timeout.set_value(30)
        self.way.set_value("command")
        for row in self._rows.values():
            row.set_problem("")
        self._show_way()
        self.refuse(None)
        self.open()
        self.name.setFocus()

    def refuse(self, problem: Problem | None) -> None:
        """Show why the engine refused the server; None clears the message."""
        self._problem.set_words(f"{problem.message} {problem.hint}".strip() if problem else "")
        self._problem.setVisible(problem is not None)

    def request(self) -> SetServer | None:
        """Return the entered server, or None with errors shown."""
        wrong = self._wrong()
        for key, row in self._rows.items():
            row.set_problem(wrong.get(key, ""))
        if wrong:
            self._rows[next(iter(wrong))].field.setFocus()
            return None
        return SetServer(name=self.name.value().strip(), server=self._values())

    def _fields(self) -> tuple[tuple[str, str, Field, str], ...]:
        return (
            ("name", "Name", self.name, "Name of the server in mcp.json."),
            ("way", "Transport", self.way, "A local command (stdio) or streamable HTTP."),
            (
                "command",
                "Command",
                self.command,
                ("Command line with arguments, as in a terminal."),
            ),
            ("url", "URL", self.url, "URL of the streamable HTTP endpoint."),
            ("timeout", "Timeout, s", self.timeout, "Timeout of one tool call in seconds."),
        )

    def _build(self) -> None:
        add(
            self.body,
            Text(WORDS, "label", 400, "muted", wrap=True),
            *self._rows.values(),
            self._problem,
            Text(SECRETS, "caption", 400, "faint", wrap=True),
            STRETCH,
        )
        cancel = Button("Cancel", "quiet", height=32)
        cancel.clicked.connect(self.close_sheet)
        add(self.foot, STRETCH, cancel, self._add)
        self.way.edited.connect(lambda _: self._show_way())
        self._add.clicked.connect(self._accept)
        for field in (self.name, self.command, self.url, self.timeout):
            line = field.editor
            assert isinstance(line, QLineEdit)
            line.returnPressed.connect(self._accept)

    def _show_way(self) -> None:
        for way, _ in WAYS:
            self._rows[way].setVisible(self.way.value() == way)

    def _values(self) -> dict[str, object]:
        by_url = self.way.value() == "url"
        command, url = self.command.value(), self.url.value()
        return entered_values(
            "" if by_url else command, url if by_url else "", self.timeout.value() or 0
        )

    def _wrong(self) -> dict[str, str]:
        """Return row key → error of the invalid rows."""
        name, way = self.name.value().strip(), self.way.value()
        wrong = {}
        if not name or len(name) > 64 or not name.replace("-", "").replace("_", "").isalnum():
            wrong["name"] = NAME
        elif name in self._taken:
            wrong["name"] = f"A server named {name} already exists."
        if text := self.timeout.problem():
            wrong["timeout"] = text
        try:
            McpServer.model_validate({**self._values(), "timeout_s": 30})
        except ValueError as error:
            first = "required" if not str(getattr(self, way).value()).strip() else str(error)
            wrong[way] = self._error_text(first)
        return wrong

    def _error_text(self, error: str) -> str:
        if "quot" in error.lower():
            return "The command has an unclosed quotation mark."
        if self.way.value() == "url":
            return "Enter a URL: http://… or https://…"
        return "Enter the command that starts the server."

    def _accept(self) -> None:
        if (request := self.request()) is not None:
            self.entered.emit(request)
