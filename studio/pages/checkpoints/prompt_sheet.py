"""Sheet that edits the prompt of a chat: its messages, and the tools offered to the models."""

import json
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from studio.pages.trajectories.reader.transcript_rows import call_words
from studio.store.runs.chat import TurnPrompt
from studio.widgets.cards.sheet import Sheet
from studio.widgets.controls.buttons import Button, IconButton
from studio.widgets.forms.text_area import TextArea
from studio.widgets.layouts import STRETCH, add, hbox, vbox
from studio.widgets.text.text import Text
from studio.widgets.transcript.items import plain, shown_part

WIDTH_PX, TOOLS_INDENT = 560, 2
MOST_CHARS, LINES = 20_000, 200
"""Longer messages are sent as they are; only their beginning is shown."""


class MessageEditor(QWidget):
    """Editor of one message: its text; role and tool calls are shown. Emits `removed`."""

    removed = Signal()

    def __init__(self, message: dict[str, Any]) -> None:
        super().__init__()
        self._message = message
        role = str(message.get("role", ""))
        self.remove = IconButton("x", "Remove this message")
        self.remove.clicked.connect(self.removed)
        self.text = TextArea(f"Message, {role}", "", least_px=72)
        content = str(message.get("content") or "")
        short = len(content) <= MOST_CHARS
        self.text.set_text(content if short else shown_part(content, LINES, MOST_CHARS)[0])
        self.text.setReadOnly(not short)
        self._shown = self.text.text()
        words = role.capitalize() if short else f"{role.capitalize()} · too long to edit"
        head = hbox(Text(words, "label", 600), STRETCH, self.remove)
        column = vbox(head, self.text, parent=self, spacing=4)
        for call in message.get("tool_calls") or []:
            name, arguments = call_words(call)
            words = plain(f"calls {name}({arguments})"[:300])
            column.addWidget(Text(words, "caption", 400, "muted", wrap=True))

    def message(self) -> dict[str, Any]:
        """Return the message; unchanged text stays exactly as it was recorded."""
        if self.text.text() == self._shown:
            return self._message
        return {**self._message, "content": self.text.text()}


class PromptSheet(Sheet):
    """Prompt sheet: `show_prompt(prompt)`; emits `applied(prompt)`, which begins a new chat."""

    applied = Signal(object)

    def __init__(self, host: QWidget) -> None:
        super().__init__("Edit prompt", host, WIDTH_PX)
        self._prompt = TurnPrompt([])
        self.editors: list[MessageEditor] = []
        self._messages: QVBoxLayout = vbox(spacing=12)
        self._add = Button("Add a user message", "quiet", icon="plus", height=28)
        self.tools = TextArea("Tools, as JSON", "[]", least_px=120)
        self._mistake = Text("", "label", 400, "bad", wrap=True)
        words = "Tools offered to the models (JSON). They are not executed."
        add(
            self.body,
            self._messages,
            hbox(self._add, STRETCH),
            Text(words, "label", 500),
            self.tools,
            self._mistake,
            STRETCH,
        )
        cancel, apply = Button("Cancel", "quiet", height=32), Button("Apply", "primary", height=32)
        add(self.foot, STRETCH, cancel, apply)
        cancel.clicked.connect(self.close_sheet)
        apply.clicked.connect(self._apply)
        self._add.clicked.connect(lambda: self._append({"role": "user", "content": ""}))

    def show_prompt(self, prompt: TurnPrompt) -> None:
        """Open the sheet with a prompt."""
        self._prompt = prompt
        for editor in [*self.editors]:
            self._remove(editor)
        for message in prompt.messages:
            self._append(message)
        self.tools.set_text(json.dumps(prompt.tools, indent=TOOLS_INDENT, ensure_ascii=False))
        self._mistake.set_words("")
        self.open()

    def _append(self, message: dict[str, Any]) -> None:
        editor = MessageEditor(message)
        editor.removed.connect(lambda: self._remove(editor))
        self.editors.append(editor)
        self._messages.addWidget(editor)
        self.bring_into_view(editor)

    def _remove(self, editor: MessageEditor) -> None:
        self.editors.remove(editor)
        self._messages.removeWidget(editor)
        editor.hide()
        editor.deleteLater()

    def _apply(self) -> None:
        messages = [editor.message() for editor in self.editors]
        mistake, tools = "", parsed_tools(self.tools.text())
        if not messages:
            mistake = "The prompt has no messages. Add one."
        elif messages[-1]["role"] == "assistant":
            mistake = "The last message is a model response. Remove it, or add a user message."
        elif tools is None:
            mistake = "Tools must be a JSON list of objects; write [] for none."
        self._mistake.set_words(mistake)
        if mistake or tools is None:
            self.bring_into_view(self._mistake)
            return
        self.applied.emit(TurnPrompt(messages, tools, self._prompt.title))
        self.close_sheet()


def parsed_tools(text: str) -> list[dict[str, Any]] | None:
    """Parse a JSON list of tools; empty text is none. Returns None if it is invalid."""
    try:
        tools = json.loads(text.strip() or "[]")
    except (ValueError, RecursionError):
        return None
    valid = isinstance(tools, list) and all(isinstance(one, dict) for one in tools)
    return tools if valid else None
